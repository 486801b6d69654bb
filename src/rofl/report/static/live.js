"use strict";
// Polls the state of the run and shows it. Texts of the run are inserted as text nodes only.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const STATES = { waiting: "Waiting", running: "Running", finished: "Finished", stopped: "Stopped" };
  const KEY = "rofl-watch-token";
  const byId = (id) => document.getElementById(id);
  let view = null;
  let reached = null;  // time of the last answer

  // The token is in the fragment (#) of the link, which browsers do not send; it is removed from the address bar at once.
  if (location.hash.length > 1) {
    sessionStorage.setItem(KEY, decodeURIComponent(location.hash.slice(1)));
    history.replaceState(null, "", location.pathname);
  }

  const say = (id, text) => {
    const element = byId(id);
    if (element.textContent !== text) element.textContent = text;
  };
  const make = (tag, text, kind) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };
  const percent = (value) => (value === null ? "–" : `${value.toFixed(1)}\u00a0%`);
  const rough = (seconds) => {
    if (seconds < 1) return "now";
    if (seconds < 90) return `${Math.round(seconds)}\u00a0s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)}\u00a0min`;
    if (seconds < 129600) return `${Math.round(seconds / 3600)}\u00a0h`;
    return `${Math.round(seconds / 86400)}\u00a0days`;
  };
  const ago = (text) => {
    const seconds = (Date.now() - Date.parse(text)) / 1000;
    return Number.isNaN(seconds) ? "–" : seconds < 2 ? "now" : `${rough(seconds)} ago`;
  };
  const clock = (text) => {
    const when = new Date(text);
    return Number.isNaN(when.getTime()) ? text : when.toLocaleTimeString();
  };

  function show() {
    document.title = `${view.round}/${view.rounds || "?"} ${view.name}`;
    say("name", view.name);
    byId("facts").replaceChildren(...Object.entries(view.facts).map(([name, value]) => {
      const fact = make("div");
      fact.append(make("dt", name), make("dd", value));
      return fact;
    }));
    byId("dot").className = `dot ${view.state}`;
    say("state", STATES[view.state]);
    say("sentence", view.sentence);
    const share = view.state === "finished" ? 1 : view.rounds ? Math.min(1, view.round / view.rounds) : 0;
    byId("done").style.width = `${100 * share}%`;
    byId("progress").setAttribute("aria-valuemax", String(view.rounds));
    byId("progress").setAttribute("aria-valuenow", String(view.round));
    say("round", view.rounds ? `${view.round} of ${view.rounds}` : String(view.round));
    say("pace", view.seconds_per_round === null ? "" : `${view.seconds_per_round < 10 ? view.seconds_per_round.toFixed(1) : Math.round(view.seconds_per_round)}\u00a0s a round`);
    const over = view.seconds !== null;
    const waitsForEnd = view.role === "site" && !over;  // only the coordinator knows it during the run
    say("left-name", over ? "Time" : "Time left");
    say("left", over ? rough(view.seconds) : view.seconds_left === null ? "–" : rough(view.seconds_left));
    say("left-note", over ? "for all rounds" : view.seconds_left === null ? "not known yet" : "about, until the last round");
    say("accuracy", percent(view.accuracy));
    say("best", view.best !== null ? `best ${percent(view.best)}` : waitsForEnd ? "shown after the last round" : "not measured yet");
    showNoise(waitsForEnd);
    showWarnings();
    say("measured", view.measured);
    byId("trusted-note").hidden = !view.trusted.length;
    byId("curves").hidden = !view.curve.length;
    draw();
    showSites();
    byId("log").hidden = !view.events.length;
    byId("events").replaceChildren(...view.events.map((event) => {
      const line = make("li", undefined, event.failed ? "failed" : "");
      line.append(make("time", clock(event.time)), make("span", event.text));
      return line;
    }));
    byId("run").hidden = false;
  }

  function showNoise(waitsForEnd) {
    const newest = view.trusted.length ? view.trusted[view.trusted.length - 1][1] : null;
    if (view.noise !== null) {
      say("noise-name", "Labels that look wrong");
      say("noise", percent(100 * view.noise));
      say("noise-note", "as judged at the end");
    } else {
      say("noise-name", "Labels not trusted");
      say("noise", newest === null ? "–" : percent(100 - newest));
      say("noise-note", newest !== null ? "by the method, in the newest round"
        : waitsForEnd ? "shown after the last round"
        : view.round ? "not available for this method" : "not known yet");
    }
  }

  function showWarnings() {
    const all = [...view.problems.map((text) => ({ time: "file", text })), ...view.warnings];
    byId("warnings").hidden = !all.length;
    byId("warning-list").replaceChildren(...all.map((warning) => {
      const line = make("li");
      line.append(make("b", `${warning.time}: `), document.createTextNode(warning.text));
      return line;
    }));
  }

  function showSites() {
    const federation = view.role !== "run";
    const columns = [
      ["name", (site) => site.name],
      ["samples", (site) => (site.samples === null ? "–" : site.samples.toLocaleString("en"))],
      ["state", (site) => site.state || "–"],
      ["last message", (site) => (site.last ? ago(site.last) : "–")],
      ["labels that look wrong", (site) => percent(site.noise === null ? null : 100 * site.noise)],
    ].filter(([name]) => view.sites.some((site) => ({
      samples: site.samples !== null,
      state: site.state,
      "last message": site.last,
      "labels that look wrong": site.noise !== null,
    })[name] ?? true));
    byId("sites").hidden = !view.sites.length;
    say("sites-name", federation ? "Sites" : view.noise === null ? "Clients of the newest round" : "Clients");
    byId("sites-head").replaceChildren(...columns.map(([name]) => {
      const head = make("th", name);
      head.scope = "col";
      if (name === "state" || name === "name") head.classList.add("words");
      return head;
    }));
    byId("sites-body").replaceChildren(...view.sites.map((site) => {
      const row = make("tr");
      row.append(...columns.map(([name, of]) => {
        const cell = make("td", of(site));
        if (name === "state" || name === "name") cell.classList.add("words");
        if (name === "state" && site.failed) cell.classList.add("failed");
        return cell;
      }));
      return row;
    }));
  }

  // --- the curve ---
  const line = (kind, values) => {
    const element = document.createElementNS(SVG, kind);
    for (const [name, value] of Object.entries(values)) element.setAttribute(name, value);
    return element;
  };
  const label = (text, values) => {
    const element = line("text", values);
    element.textContent = text;
    return element;
  };
  const steps = (least, most, count) => {
    const raw = Math.max(1, (most - least) / count);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw);
    const found = [];
    for (let at = Math.ceil(least / step) * step; at <= most + 1e-9; at += step) found.push(at);
    return found;
  };
  let scale = null;

  function draw(marked) {
    const box = byId("chart");
    const width = box.clientWidth, height = box.clientHeight;
    if (!width || !view || !view.curve.length) return;
    const left = 66, right = width - 12, top = 12, bottom = height - 44;
    const last = Math.max(view.rounds, view.round, 2);
    const values = [...view.curve, ...view.trusted].map(([, value]) => value);
    const least = Math.max(0, Math.floor((Math.min(...values) - 2) / 10) * 10);
    const most = Math.min(100, Math.max(least + 10, Math.ceil(Math.max(...values) / 10) * 10));
    const x = (round) => left + ((right - left) * (round - 1)) / (last - 1);
    const y = (value) => bottom - ((bottom - top) * (value - least)) / (most - least);
    const svg = line("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    svg.setAttribute("aria-label", `Accuracy per round, now ${percent(view.accuracy)}`);
    for (const value of steps(least, most, 5)) {
      svg.append(line("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }));
      svg.append(label(`${value}\u00a0%`, { x: left - 8, y: y(value) + 4, "text-anchor": "end" }));
    }
    for (const round of steps(1, last, width < 500 ? 4 : 8)) {
      svg.append(label(String(round), { x: x(round), y: bottom + 18, "text-anchor": "middle" }));
    }
    svg.append(label("accuracy", { x: 12, y: (top + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(top + bottom) / 2})` }));
    svg.append(label("round", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }));
    const path = (points) => points.map(([round, value]) => `${x(round).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    svg.append(line("polyline", { class: "trusted", points: path(view.trusted) }));
    svg.append(line("polyline", { class: "accuracy", points: path(view.curve) }));
    const newest = view.curve[view.curve.length - 1];
    svg.append(line("circle", { cx: x(newest[0]), cy: y(newest[1]), r: 4.5 }));
    if (marked) svg.append(line("line", { class: "mark", x1: x(marked), x2: x(marked), y1: top, y2: bottom }));
    scale = { left, right, last };
    box.replaceChildren(svg);
  }

  byId("chart").addEventListener("pointermove", (event) => {
    if (!scale || !view) return;
    const at = event.clientX - byId("chart").getBoundingClientRect().left;
    const wanted = 1 + ((at - scale.left) / (scale.right - scale.left)) * (scale.last - 1);
    const nearest = (points) => points.reduce((best, point) => (
      !best || Math.abs(point[0] - wanted) < Math.abs(best[0] - wanted) ? point : best), null);
    const found = nearest(view.curve);
    const trusted = view.trusted.find(([round]) => round === found[0]);
    say("readout", `round ${found[0]}: ${percent(found[1])}${trusted ? `, ${percent(trusted[1])} of labels trusted` : ""}`);
    draw(found[0]);
  });
  byId("chart").addEventListener("pointerleave", () => { say("readout", "\u00a0"); draw(); });
  addEventListener("resize", () => draw());

  // --- asking ---
  async function ask() {
    const token = sessionStorage.getItem(KEY);
    const answer = await fetch("status", {
      headers: token ? { Authorization: `Bearer ${token}` } : {},
      signal: AbortSignal.timeout(15000),
    });
    if (answer.status === 401) {
      byId("run").hidden = true;
      byId("refused").hidden = !token;
      byId("ask").hidden = false;
      say("name", "A run");
      return false;
    }
    if (!answer.ok) throw new Error(String(answer.status));
    view = await answer.json();
    byId("ask").hidden = true;
    reached = new Date();
    show();
    return true;
  }

  async function again() {
    let wait = 1000;
    try {
      if (!(await ask())) return;  // wait for the user to enter a token
      byId("offline").hidden = true;
      wait = view.state === "running" || view.state === "waiting" ? 1000 : 5000;
    } catch {
      say("offline", reached
        ? `No answer since ${reached.toLocaleTimeString()}: rofl watch has ended, or cannot be reached. The data below is from that time.`
        : "No answer: rofl watch has ended, or cannot be reached.");
      byId("offline").hidden = false;
      wait = 3000;
    }
    setTimeout(again, document.hidden ? Math.max(wait, 5000) : wait);
  }

  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, byId("token").value.trim());
    byId("token").value = "";
    again();
  });
  again();
})();
