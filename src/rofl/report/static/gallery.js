// The gallery: filters, pages of cards, keys and buttons to decide, and the file of decisions.
{
  const PAGE = 100; // cards at a time, so that 10,000 suspects are as fast as 100
  const find = id => document.getElementById(id);
  const data = JSON.parse(find("suspects-data").textContent);
  const decisions = new Decisions(data);
  const cards = new Cards(data, decisions);
  const list = find("cards");
  const filters = { client: find("by-client"), given: find("by-given"), suggested: find("by-suggested") };
  const state = find("by-state"), score = find("by-score");
  let selected = null; // rows of the training set that are selected in the t-SNE picture
  let chosen = []; // suspects that pass the filters; not updated by a decision, so that no card disappears
  let first = 0; // index in `chosen` of the first card
  let unsaved = false;

  // --- filters and pages ---

  function fillFilter(select, names, column) {
    const counts = new Map();
    for (const i of column) counts.set(i, (counts.get(i) || 0) + 1);
    names.forEach((name, i) => counts.has(i) && select.append(new Option(`${name} (${counts.get(i)})`, i)));
    select.parentElement.hidden = counts.size < 2;
  }

  function applyFilters() {
    const active = Object.entries(filters).filter(([, select]) => select.value !== "");
    const least = Number(score.value);
    chosen = data.sample.map((_, i) => i).filter(i =>
      data.score[i] >= least
      && (!selected || selected.has(data.row[i]))
      && active.every(([name, select]) => data[name][i] === Number(select.value))
      && (!state.value || state.value === (decisions.get(i)?.decision ?? "undecided")));
    first = 0;
    find("least").textContent = score.value;
    draw();
  }

  function draw() {
    list.replaceChildren(...chosen.slice(first, first + PAGE).map(i => cards.make(i)));
    find("page").textContent = `${first / PAGE + 1} of ${Math.max(1, Math.ceil(chosen.length / PAGE))}`;
    find("previous").disabled = first === 0;
    find("next").disabled = first + PAGE >= chosen.length;
    updateCounter();
  }

  function updateCounter() {
    const [shown, all, decided] = [chosen, data.sample, decisions.complete].map(list => list.length.toLocaleString("en"));
    find("counter").textContent = `${shown} of ${all} shown, ${decided} decided`;
    find("save").disabled = decisions.complete.length === 0;
  }

  // --- the selection in the t-SNE picture ---

  function select(rows) {
    selected = rows && new Set(rows);
    const cards = selected ? data.row.filter(row => selected.has(row)).length : 0;
    find("selection").hidden = !selected;
    find("selection").firstElementChild.textContent = selected
      && `${selected.size} ${selected.size === 1 ? "sample" : "samples"} selected in the picture above, ${cards} of them suspects.`;
    applyFilters();
  }

  function showMessage(text) {
    find("message").textContent = text;
  }

  // --- moving and deciding ---

  function indexOf(item) {
    return first + [...list.children].indexOf(item);
  }

  function goTo(index) {
    if (index < 0 || index >= chosen.length) return;
    const start = index - index % PAGE;
    if (start !== first) {
      first = start;
      draw();
    }
    list.children[index - first].focus();
  }

  // returns the position in `chosen`, or undefined if all are decided
  function goToNextUndecided(item) {
    const current = indexOf(item), indices = [...chosen.keys()];
    const others = [...indices.slice(current + 1), ...indices.slice(0, current)];
    const next = others.find(index => !decisions.get(chosen[index]));
    if (next === undefined) showMessage("All suspects shown here are decided.");
    else goTo(next);
    return next;
  }

  function decide(item, decision, label) {
    if (decision) decisions.decide(suspectOf(item), decision, label);
    else decisions.undo(suspectOf(item));
    unsaved = true;
    cards.paint(item);
    updateCounter();
    showMessage(decisions.stored ? "" : "This browser does not store decisions for this page: save them before you close it.");
  }

  // undoes this card's decision, or else the newest one
  function undo(item) {
    const index = decisions.get(suspectOf(item)) ? indexOf(item) : chosen.indexOf(decisions.last);
    if (index < 0) return;
    goTo(index);
    decide(list.children[index - first], null);
  }

  // --- one sample, large ---

  let viewed = 0; // position in `chosen`
  const viewer = find("viewer") && new Viewer(data, {
    go: step => view(viewed + step),
    decision: i => decisions.get(i),
    closed: () => goTo(viewed),
    decide: decision => {
      const item = list.children[viewed - first];
      decide(item, decision);
      const next = goToNextUndecided(item);
      if (next === undefined) viewer.paint();
      else view(next);
    },
  });

  function view(index) {
    if (!viewer || index < 0 || index >= chosen.length) return;
    viewed = index;
    goTo(index);
    viewer.open(chosen[index]);
  }

  // --- files ---

  function save() {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([decisions.csv()], { type: "text/csv;charset=utf-8" }));
    link.download = data.file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    unsaved = false;
    const incomplete = decisions.all.size - decisions.complete.length;
    showMessage(incomplete ? `Not saved: ${incomplete} marked wrong without a class.` : "");
  }

  async function load() {
    const [file] = find("load").files;
    if (!file) return;
    try {
      const { loaded, ignored } = decisions.load(await file.text());
      decisions.store();
      applyFilters();
      showMessage(`Decisions loaded: ${loaded}.${ignored ? ` Not about this page's suspects: ${ignored}.` : ""}`);
    } catch (error) {
      showMessage(`${file.name} cannot be loaded: ${error.message}.`);
    }
    find("load").value = ""; // allows loading the same file again
  }

  // --- events ---

  const columns = () => getComputedStyle(list).gridTemplateColumns.split(" ").length;
  const steps = { ArrowLeft: () => -1, ArrowRight: () => 1, ArrowUp: () => -columns(), ArrowDown: () => columns() };
  const marks = { w: "wrong", r: "right" };

  list.addEventListener("keydown", event => {
    const item = event.target.closest(".suspect"), key = event.key.toLowerCase();
    if (!item || event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) goTo(indexOf(item) + steps[event.key]());
    else if (event.repeat) return; // a key held down decides once
    else if (key in marks) {
      decide(item, marks[key]);
      goToNextUndecided(item);
    } else if (key === "u") undo(item);
    else if (key === "enter" && event.target === item) view(indexOf(item));
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", event => {
    const { decision } = event.target.dataset, item = event.target.closest(".suspect");
    if (decision) decide(item, decisions.get(suspectOf(item))?.decision === decision ? null : decision);
    else if (event.target.tagName === "IMG") view(indexOf(item));
  });
  list.addEventListener("change", event => {
    const item = event.target.closest(".suspect");
    decide(item, "wrong", Number(event.target.value));
    item.querySelector("select").focus();
  });
  for (const select of [...Object.values(filters), state]) select.addEventListener("change", applyFilters);
  score.addEventListener("input", applyFilters);
  find("previous").addEventListener("click", () => goTo(first - PAGE));
  find("next").addEventListener("click", () => goTo(first + PAGE));
  find("save").addEventListener("click", save);
  find("load").addEventListener("change", load);
  document.addEventListener("samples-selected", event => select(event.detail));
  find("clear-selection").addEventListener("click", () => {
    document.dispatchEvent(new CustomEvent("selection-cleared"));
    select(null);
  });
  addEventListener("beforeunload", event => !decisions.stored && unsaved && event.preventDefault());

  fillFilter(filters.client, data.clients, data.client);
  fillFilter(filters.given, data.classes, data.given);
  fillFilter(filters.suggested, data.classes, data.suggested);
  applyFilters();
  find("review").hidden = false;
}
