// Builds a card for each suspect. Text is set as text content, never as HTML.

class Cards {
  constructor(data, decisions) {
    this.data = data;
    this.decisions = decisions;
  }

  make(i) {
    const { data } = this;
    const item = make("li", "suspect");
    item.tabIndex = 0;
    item.dataset.suspect = i;
    if (data.picture) {
      const image = make("img", data.edge <= 48 ? "coarse" : "");
      image.src = `data:${data.kind};base64,${data.picture[i]}`;
      image.alt = `sample ${data.sample[i]}, labelled ${data.classes[data.given[i]]}`;
      item.append(image);
    }
    const labels = make("p", "labels");
    labels.append(named("s", data.classes[data.given[i]]), " → ", named("b", data.classes[data.suggested[i]]));
    item.append(labels);
    if (data.cells) item.append(this.cells(i));
    if (data.wrong) {
      const [sign, text] = data.wrong[i] ? ["yes", "✓ wrong"] : ["no", "✗ label is right"];
      item.append(make("p", `mark ${sign}`, text));
    }
    const details = make("p", "note");
    details.append("client ", named("span", data.clients[data.client[i]]), make("br"));
    details.append("sample ", named("span", data.sample[i]), make("br"), `score ${data.score[i].toFixed(2)}`);
    const buttons = make("div", "decide");
    buttons.append(...["wrong", "right"].map(decision => {
      const button = make("button", decision, decision);
      button.type = "button";
      button.title = `label is ${decision}`;
      button.dataset.decision = decision;
      return button;
    }));
    item.append(details, buttons);
    this.paint(item);
    return item;
  }

  // returns the values of a table's row
  cells(i) {
    const list = make("dl", "cells");
    list.append(...this.data.columns.map((column, k) => {
      const line = make("div");
      line.append(named("dt", column), named("dd", this.data.cells[i][k]));
      return line;
    }));
    return list;
  }

  // updates the parts of a card that depend on its decision
  paint(item) {
    const { data } = this, i = suspectOf(item), current = this.decisions.get(i);
    for (const button of item.querySelectorAll("button")) {
      const { decision } = button.dataset, pressed = current?.decision === decision;
      button.setAttribute("aria-pressed", pressed);
      item.classList.toggle(decision, pressed);
    }
    const description = [
      `sample ${data.sample[i]} of client ${data.clients[data.client[i]]}`,
      `labelled ${data.classes[data.given[i]]}`,
      `suggested ${data.classes[data.suggested[i]]}`,
      `score ${data.score[i].toFixed(2)}`,
      current ? `decided: label is ${current.decision}` : "undecided",
    ];
    item.setAttribute("aria-label", description.join(", "));
    item.querySelector(".should")?.remove();
    if (current?.decision === "wrong") item.append(this.classChoice(i, current.label));
  }

  // returns the list from which the reader chooses the right class of a wrong label
  classChoice(i, label) {
    const line = make("label", "should", "should be ");
    const select = make("select");
    if (label === null) select.append(new Option("choose", ""));
    this.data.classes.forEach((name, k) => k !== this.data.given[i] && select.append(new Option(name, k)));
    select.value = label ?? "";
    line.append(select);
    return line;
  }
}

function suspectOf(item) {
  return Number(item.dataset.suspect);
}

function make(tag, name, text = "") {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.textContent = text;
  return element;
}

// returns an element with a name as text, shortened in the middle; it may break after a slash or an underscore
function named(tag, name) {
  const element = make(tag), shown = name.length > 44 ? `${name.slice(0, 20)}…${name.slice(-23)}` : name;
  shown.split(/(?<=[/_])/).forEach((part, k) => element.append(...(k ? [make("wbr"), part] : [part])));
  element.title = name;
  return element;
}
