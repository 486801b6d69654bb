"use strict";

// The reader's decisions about suspects: stored by the browser, exported and imported as CSV.
// This file uses the page's data and none of its elements.

const COLUMNS = ["client", "sample", "given", "decision", "label"];

class Decisions {
  constructor(data) {
    this.data = data;
    // index of a suspect -> {decision: "wrong" or "right", label: index of a class, or null}, newest last
    this.all = new Map();
    this.stored = true; // whether the browser's storage works
    this.indices = new Map(data.sample.map((sample, i) => [identity(data.clients[data.client[i]], sample), i]));
    this.restore();
  }

  get(i) {
    return this.all.get(i);
  }

  decide(i, decision, label = this.defaultLabel(i, decision)) {
    this.all.delete(i);
    this.all.set(i, { decision, label });
    this.store();
  }

  undo(i) {
    this.all.delete(i);
    this.store();
  }

  get last() {
    return [...this.all.keys()].at(-1);
  }

  // the class of a decision before the reader chooses one
  defaultLabel(i, decision) {
    const { given, suggested } = this.data;
    if (decision === "right") return given[i];
    return suggested[i] === given[i] ? null : suggested[i]; // null: the reader has to choose
  }

  // decisions with a class; only these are saved to a file
  get complete() {
    return [...this.all].filter(([, { label }]) => label !== null);
  }

  csv(decisions = this.complete) {
    const { clients, client, sample, classes, given } = this.data;
    const rows = decisions.map(([i, { decision, label }]) =>
      [clients[client[i]], sample[i], classes[given[i]], decision, label === null ? "" : classes[label]]);
    return [COLUMNS, ...rows].map(row => row.map(cell).join() + "\n").join("");
  }

  // imports decisions from CSV text; returns how many were imported, and how many rows were ignored
  load(text) {
    const [head = [], ...rows] = parse(text.replace(/^\uFEFF/, "")); // spreadsheets write a byte order mark first
    const column = Object.fromEntries(COLUMNS.map(name => [name, head.indexOf(name)]));
    if (Object.values(column).includes(-1)) throw new Error(`it must have the columns ${COLUMNS.join(", ")}`);
    const { classes, given } = this.data;
    let loaded = 0;
    for (const row of rows) {
      const i = this.indices.get(identity(row[column.client], row[column.sample]));
      const decision = row[column.decision], label = classes.indexOf(row[column.label]);
      if (classes[given[i]] !== row[column.given] || !["wrong", "right"].includes(decision)) continue;
      const chosen = decision === "wrong" && label >= 0 && label !== given[i];
      this.all.set(i, { decision, label: chosen ? label : this.defaultLabel(i, decision) });
      loaded += 1;
    }
    return { loaded, ignored: rows.length - loaded };
  }

  restore() {
    try {
      const text = localStorage.getItem(this.data.key);
      if (text) this.load(text);
    } catch {
      this.stored = false;
    }
  }

  store() {
    try {
      localStorage.setItem(this.data.key, this.csv([...this.all]));
      this.stored = true;
    } catch {
      this.stored = false;
    }
  }
}

function identity(client, sample) {
  return JSON.stringify([client, sample]);
}

// prefixes text that a spreadsheet would execute with an apostrophe, as rofl/data/spreadsheet.py does
const FORMULA = /^'*[=+\-@\t\r\n＝＋－＠]/;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

function cell(text) {
  if (FORMULA.test(text) && !NUMBER.test(text)) text = `'${text}`;
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function unescaped(text) {
  return text.startsWith("'") && FORMULA.test(text) ? text.slice(1) : text;
}

// returns rows of cells; quoted cells may contain any character
function parse(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^,\r\n]*))(,|\r\n|\r|\n|$)/g)) {
    rows.at(-1).push(unescaped(quoted === undefined ? plain : quoted.replaceAll('""', '"')));
    if (end !== ",") rows.push([]);
    if (end === "") break;
  }
  return rows.filter(row => row.length > 1); // skip empty lines
}
