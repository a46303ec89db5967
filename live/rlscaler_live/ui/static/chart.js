"use strict";

const place = document.getElementById("charts");
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const drawn = [];
// The decision that arrow keys reached. The cursor does not hold it: a browser moves that to a resting mouse after every layout.
let chosen = null;

const LOAD = [
  ["low", "forecast, half of the time below", "band"], ["high", "forecast, 9 of 10 times below", "band"],
  ["capacity", "ready replicas carry", "gpu"], ["load", "load", "load"],
];
const replicas = (pool) => [
  [`hpa_${pool}`, "HPA formula, played", "other"], [`wanted_${pool}`, "wanted", "cpu"], [`ready_${pool}`, "ready", pool === "gpu" ? "gpu" : "load"],
];
const CHARTS = [
  ["Load, requests/s or the policy's unit", LOAD], ["GPU replicas", replicas("gpu"), true], ["CPU replicas", replicas("cpu"), true],
  ["Late requests, %", [["late", "late", "late"]]],
];

// One table of all times; a column of two tables comes from the first that has it.
function joined(tables) {
  const names = [], parts = [];
  for (const table of tables) {
    if (!table.time || !table.time.length) continue;
    const own = Object.keys(table).filter((name) => name !== "time" && !names.includes(name));
    names.push(...own);
    parts.push([table.time, ...own.map((name) => table[name])]);
  }
  const columns = parts.length ? uPlot.join(parts) : [[]];
  return { time: columns[0], of: Object.fromEntries(names.map((name, i) => [name, columns[i + 1]])) };
}

function draw(answer) {
  const focused = drawn.findIndex((chart) => chart.over === document.activeElement);
  for (const chart of drawn.splice(0)) chart.destroy();
  place.replaceChildren();
  const data = joined(answer.tables);
  for (const [title, wanted, stepped] of CHARTS) {
    const lines = wanted.filter(([name]) => name in data.of);
    if (lines.every(([name]) => ["low", "high", "hpa_gpu", "hpa_cpu"].includes(name))) continue;
    drawn.push(one(title, lines, stepped, data, answer));
  }
  drawn[focused]?.over.focus();
  if (answer.late) say(`More requests were late than allowed in ${answer.late[0]} of ${answer.late[1]} minutes.`, "");
  if (!drawn.length) say("Nothing is known of this range.", "note");
  for (const note of answer.notes) say(note, "note warn");
}

function clock(time, range) {
  const text = new Date(1000 * time).toISOString();
  return range > 2 * 86400 ? text.slice(5, 16).replace("T", " ") : text.slice(11, 16);
}

function say(text, kind) {
  const line = document.createElement("p");
  line.className = kind;
  line.textContent = text;
  place.append(line);
}

function one(title, lines, stepped, data, answer) {
  const frame = document.createElement("figure");
  const caption = document.createElement("figcaption");
  caption.textContent = title;
  frame.append(caption);
  place.append(frame);
  const axis = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line") } };
  const peak = (name) => Math.max(0, ...(data.of[name] || []).filter((value) => value != null));
  const top = lines.some(([name]) => name === "load") ? 1.15 * Math.max(peak("load"), peak("capacity")) : null;
  const band = ["low", "high"].map((name) => 1 + lines.findIndex(([line]) => line === name));
  const chart = new uPlot({
    width: Math.max(280, place.clientWidth),
    height: stepped ? 170 : 220,
    cursor: { sync: { key: "policy" } },
    hooks: { ready: [mark] },
    tzDate: (time) => uPlot.tzDate(new Date(1000 * time), "UTC"),
    scales: { x: { min: answer.window[0], max: answer.window[1] }, y: { range: (u, low, high) => [0, top || Math.max(1, 1.1 * high)] } },
    axes: [
      { ...axis, space: 70, values: (u, times) => times.map((time) => clock(time, u.scales.x.max - u.scales.x.min)) },
      { ...axis, size: 55, ...(stepped ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] } : {}) },
    ],
    bands: band.every((number) => number > 0) ? [{ series: [band[1], band[0]], fill: color("band") }] : [],
    series: [{ label: "UTC", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" }, ...lines.map(([name, label, paint]) => ({
      label, stroke: color(paint === "band" ? "soft" : paint), width: name === "load" || name.startsWith("ready") ? 2 : 1.25,
      dash: name.startsWith("hpa") || name === "capacity" ? [6, 4] : undefined, spanGaps: true,
      paths: stepped ? uPlot.paths.stepped({ align: 1 }) : undefined, points: { show: data.of[name].filter((value) => value != null).length < 8 },
      value: (u, value) => value == null ? "–" : Number(value.toPrecision(4)).toString(),
    }))],
  }, [data.time, ...lines.map(([name]) => data.of[name])], frame);
  chart.over.tabIndex = 0;
  chart.over.setAttribute("role", "application");
  chart.over.setAttribute("aria-label", `${title}. Arrow keys move along the decisions, Enter explains one.`);
  chart.over.addEventListener("click", () => explain(chart.posToVal(chart.cursor.left, "x"), answer));
  chart.over.addEventListener("keydown", (event) => step(event, chart, answer));
  return chart;
}

// A line at the decision that is explained below.
function mark(chart) {
  const at = Number(place.dataset.at);
  const old = chart.over.querySelector(".at");
  if (old) old.remove();
  if (!place.dataset.at || at < chart.scales.x.min || at > chart.scales.x.max) return;
  const line = document.createElement("div");
  line.className = "at";
  line.style.left = `${chart.valToPos(at, "x")}px`;
  chart.over.append(line);
}

function step(event, chart, answer) {
  const times = answer.decisions.length ? answer.decisions : chart.data[0];
  const here = chosen ?? (place.dataset.at ? Number(place.dataset.at) : times[times.length - 1]);
  let next;
  if (event.key === "ArrowRight") next = times.find((time) => time > here);
  else if (event.key === "ArrowLeft") next = times.findLast((time) => time < here);
  else if (event.key === "Enter") { explain(here, answer); return; }
  else return;
  event.preventDefault();
  if (next === undefined) return;
  chosen = next;
  chart.setCursor({ left: chart.valToPos(next, "x"), top: 20 });
}

async function explain(at, answer) {
  const near = answer.decisions.reduce((best, time) => Math.abs(time - at) < Math.abs(best - at) ? time : best, answer.decisions[0] ?? at);
  const address = new URL(location.href);
  address.searchParams.set("at", near);
  history.replaceState(null, "", address);
  place.dataset.at = near;
  chosen = null;
  drawn.forEach(mark);
  await htmx.ajax("GET", `${place.dataset.decision}${address.search}`, "#decision");
}

async function read(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

async function load() {
  try {
    const answer = await read(place.dataset.series);
    draw(answer);
    // The HPA formula has to be played first, which takes seconds.
    read(place.dataset.hpa).then(({ table, note }) => {
      if (table) answer.tables.push(table);
      if (note) answer.notes.push(note);
      if (table || note) draw(answer);
      place.dataset.complete = "true";
    });
    let width = place.clientWidth;
    new ResizeObserver(() => { if (place.clientWidth !== width) { width = place.clientWidth; draw(answer); } }).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(answer));
  } catch (error) {
    place.replaceChildren();
    say(`The chart cannot be read: ${error.message}`, "note bad");
  }
}
load();
