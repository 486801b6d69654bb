// Going through the suspects: filters, pages of cards, keys and buttons to decide, and the file of decisions.
{
  const PAGE = 100; // cards at a time, so that 10,000 suspects are as quick as 100
  const find = id => document.getElementById(id);
  const data = JSON.parse(find("suspects-data").textContent);
  const decisions = new Decisions(data);
  const cards = new Cards(data, decisions);
  const list = find("cards");
  const filters = { client: find("by-client"), given: find("by-given"), suggested: find("by-suggested") };
  const state = find("by-state"), score = find("by-score");
  let chosen = []; // suspects that pass the filters; a decision does not change it, so that nothing jumps away
  let first = 0; // place in `chosen` of the first card
  let unsaved = false;

  // --- filters and pages ---

  function offer(select, names, column) {
    const counts = new Map();
    for (const i of column) counts.set(i, (counts.get(i) || 0) + 1);
    names.forEach((name, i) => counts.has(i) && select.append(new Option(`${name} (${counts.get(i)})`, i)));
    select.parentElement.hidden = counts.size < 2;
  }

  function choose() {
    const wanted = Object.entries(filters).filter(([, select]) => select.value !== "");
    const least = Number(score.value);
    chosen = data.sample.map((_, i) => i).filter(i =>
      data.score[i] >= least
      && wanted.every(([name, select]) => data[name][i] === Number(select.value))
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
    count();
  }

  function count() {
    const [shown, all, decided] = [chosen, data.sample, decisions.complete].map(some => some.length.toLocaleString("en"));
    find("counter").textContent = `${shown} of ${all} shown, ${decided} decided`;
    find("save").disabled = decisions.complete.length === 0;
  }

  function say(text) {
    find("said").textContent = text;
  }

  // --- moving and deciding ---

  function place(item) {
    return first + [...list.children].indexOf(item);
  }

  function go(there) {
    if (there < 0 || there >= chosen.length) return;
    const start = there - there % PAGE;
    if (start !== first) {
      first = start;
      draw();
    }
    list.children[there - first].focus();
  }

  function goOn(item) {
    const here = place(item), places = [...chosen.keys()];
    const there = [...places.slice(here + 1), ...places.slice(0, here)].find(p => !decisions.get(chosen[p]));
    if (there === undefined) say("All that are shown are decided.");
    else go(there);
  }

  function decide(item, decision, label) {
    if (decision) decisions.decide(suspect(item), decision, label);
    else decisions.undo(suspect(item));
    unsaved = true;
    cards.paint(item);
    count();
    say(decisions.kept ? "" : "This browser keeps nothing for this page: save before you close it.");
  }

  // this card's decision, or else the last one
  function takeBack(item) {
    const there = decisions.get(suspect(item)) ? place(item) : chosen.indexOf(decisions.last);
    if (there < 0) return;
    go(there);
    decide(list.children[there - first], null);
  }

  // --- files ---

  function save() {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([decisions.csv()], { type: "text/csv;charset=utf-8" }));
    link.download = data.file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    unsaved = false;
    const open = decisions.made.size - decisions.complete.length;
    say(open ? `Without ${open} that you marked wrong and gave no class.` : "");
  }

  async function load() {
    const [file] = find("load").files;
    if (!file) return;
    try {
      const { taken, strange } = decisions.take(await file.text());
      decisions.keep();
      choose();
      say(`Decisions loaded: ${taken}.${strange ? ` Not about this page's suspects: ${strange}.` : ""}`);
    } catch (error) {
      say(`${file.name} cannot be loaded: ${error.message}.`);
    }
    find("load").value = ""; // so that the same file can be loaded again
  }

  // --- events ---

  const columns = () => getComputedStyle(list).gridTemplateColumns.split(" ").length;
  const steps = { ArrowLeft: () => -1, ArrowRight: () => 1, ArrowUp: () => -columns(), ArrowDown: () => columns() };
  const marks = { w: "wrong", r: "right" };

  list.addEventListener("keydown", event => {
    const item = event.target.closest(".suspect"), key = event.key.toLowerCase();
    if (!item || event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) go(place(item) + steps[event.key]());
    else if (event.repeat) return; // a key held down decides once
    else if (key in marks) {
      decide(item, marks[key]);
      goOn(item);
    } else if (key === "u") takeBack(item);
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", event => {
    const { decision } = event.target.dataset, item = event.target.closest(".suspect");
    if (decision) decide(item, decisions.get(suspect(item))?.decision === decision ? null : decision);
  });
  list.addEventListener("change", event => {
    const item = event.target.closest(".suspect");
    decide(item, "wrong", Number(event.target.value));
    item.querySelector("select").focus();
  });
  for (const select of [...Object.values(filters), state]) select.addEventListener("change", choose);
  score.addEventListener("input", choose);
  find("previous").addEventListener("click", () => go(first - PAGE));
  find("next").addEventListener("click", () => go(first + PAGE));
  find("save").addEventListener("click", save);
  find("load").addEventListener("change", load);
  addEventListener("beforeunload", event => !decisions.kept && unsaved && event.preventDefault());

  offer(filters.client, data.clients, data.client);
  offer(filters.given, data.classes, data.given);
  offer(filters.suggested, data.classes, data.suggested);
  choose();
  find("review").hidden = false;
}
