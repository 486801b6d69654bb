"use strict";

// What the reader decided about each suspect: kept by the browser, given out and taken back as CSV.
// It knows the page's data and none of its elements.

const COLUMNS = ["client", "sample", "given", "decision", "label"];

class Decisions {
  constructor(data) {
    this.data = data;
    // number of a suspect -> {decision: "wrong" or "right", label: number of a class, null for none yet}, last made last
    this.made = new Map();
    this.kept = true; // whether the browser keeps them
    this.places = new Map(data.sample.map((sample, i) => [identity(data.clients[data.client[i]], sample), i]));
    this.recall();
  }

  get(i) {
    return this.made.get(i);
  }

  decide(i, decision, label = this.usual(i, decision)) {
    this.made.delete(i);
    this.made.set(i, { decision, label });
    this.keep();
  }

  undo(i) {
    this.made.delete(i);
    this.keep();
  }

  get last() {
    return [...this.made.keys()].at(-1);
  }

  usual(i, decision) {
    const { given, suggested } = this.data;
    if (decision === "right") return given[i];
    return suggested[i] === given[i] ? null : suggested[i]; // then the reader has to choose
  }

  // decisions with a class, which are those that a file can hold
  get complete() {
    return [...this.made].filter(([, { label }]) => label !== null);
  }

  csv(made = this.complete) {
    const { clients, client, sample, classes, given } = this.data;
    const rows = made.map(([i, { decision, label }]) =>
      [clients[client[i]], sample[i], classes[given[i]], decision, label === null ? "" : classes[label]]);
    return [COLUMNS, ...rows].map(row => row.map(cell).join() + "\n").join("");
  }

  // decisions from CSV text; returns how many are about this page's suspects, and how many are not
  take(text) {
    const [head = [], ...rows] = parse(text.replace(/^\uFEFF/, "")); // spreadsheets put a mark before the first name
    const column = Object.fromEntries(COLUMNS.map(name => [name, head.indexOf(name)]));
    if (Object.values(column).includes(-1)) throw new Error(`it has not the columns ${COLUMNS.join(", ")}`);
    const { classes, given } = this.data;
    let taken = 0;
    for (const row of rows) {
      const i = this.places.get(identity(row[column.client], row[column.sample]));
      const decision = row[column.decision], label = classes.indexOf(row[column.label]);
      if (classes[given[i]] !== row[column.given] || !["wrong", "right"].includes(decision)) continue;
      const another = decision === "wrong" && label >= 0 && label !== given[i];
      this.made.set(i, { decision, label: another ? label : this.usual(i, decision) });
      taken += 1;
    }
    return { taken, strange: rows.length - taken };
  }

  recall() {
    try {
      const kept = localStorage.getItem(this.data.key);
      if (kept) this.take(kept);
    } catch {
      this.kept = false;
    }
  }

  keep() {
    try {
      localStorage.setItem(this.data.key, this.csv([...this.made]));
      this.kept = true;
    } catch {
      this.kept = false;
    }
  }
}

function identity(client, sample) {
  return JSON.stringify([client, sample]);
}

function cell(text) {
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// rows of cells; quoted cells may hold anything
function parse(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^,\r\n]*))(,|\r\n|\r|\n|$)/g)) {
    rows.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end !== ",") rows.push([]);
    if (end === "") break;
  }
  return rows.filter(row => row.length > 1); // an empty line is no row
}
