"use strict";

// -- tables: sorted, filtered, paged ----------------------------------------------------------------------------------

// A first click on a head shows the best first, a second turns the order around. What is not there comes last.
function sort(table, header) {
  const headers = [...header.parentElement.cells];
  const column = headers.indexOf(header);
  const now = header.getAttribute("aria-sort");
  const order = now ? (now === "ascending" ? "descending" : "ascending") : header.dataset.first;
  for (const other of headers) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", order);
  const key = (row) => row.cells[column].dataset.key;
  const compare = (x, y) => (x === "" || y === "" || isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    return order === "descending" ? compare(y, x) : compare(x, y);
  }));
}

class Paged {
  constructor(place) {
    this.table = place.querySelector("table");
    this.size = Number(place.dataset.page);
    this.from = 0;
    this.pager = document.createElement("div");
    this.pager.className = "pager";
    place.append(this.pager);
    for (const header of this.table.tHead.rows[0].cells) {
      header.querySelector("button").addEventListener("click", () => { sort(this.table, header); this.from = 0; this.show(); });
    }
    this.show();
  }

  // Rows that the filter leaves out are gone on paper, too; those of other pages are not.
  show() {
    const rows = [...this.table.tBodies[0].rows].filter((row) => {
      row.hidden = wanted !== null && known.has(row.dataset.method) && !wanted.has(row.dataset.method);
      return !row.hidden;
    });
    const all = rows.length <= this.size;
    if (this.from >= rows.length) this.from = 0;
    rows.forEach((row, place) => row.classList.toggle("later", !all && (place < this.from || place >= this.from + this.size)));
    this.tell(rows.length, all);
  }

  tell(count, all) {
    const focused = this.pager.contains(document.activeElement) ? document.activeElement.textContent : null;
    const short = this.table.tBodies[0].rows.length <= this.size && isFinite(this.size);
    this.pager.hidden = short && all;
    if (all && isFinite(this.size)) { this.pager.replaceChildren(); this.pager.hidden = true; return; }
    const told = document.createElement("span");
    const last = Math.min(this.from + this.size, count);
    told.textContent = all ? `all ${count} rows` : `rows ${this.from + 1} to ${last} of ${count}`;
    const button = (text, disabled, act) => {
      const made = document.createElement("button");
      Object.assign(made, { type: "button", textContent: text, disabled });
      made.addEventListener("click", () => { act(); this.show(); });
      return made;
    };
    const buttons = all
      ? [button("Fewer", false, () => { this.size = this.usual; this.from = 0; })]
      : [
        button("Previous", this.from === 0, () => { this.from -= this.size; }),
        button("Next", last >= count, () => { this.from += this.size; }),
        button("All", false, () => { this.usual = this.size; this.size = Infinity; this.from = 0; }),
      ];
    this.pager.replaceChildren(told, ...buttons);
    if (focused !== null) (buttons.find((one) => one.textContent === focused && !one.disabled) ?? buttons.at(-1)).focus();
  }
}

// -- the filter -------------------------------------------------------------------------------------------------------

const filter = document.getElementById("filter");
const methods = [...document.querySelectorAll("#methods option")].map((option) => option.value);
const known = new Set(methods);
let wanted = null;  // the methods to be seen; null for all

function choose() {
  const parts = filter.value.toLowerCase().split(",").map((part) => part.trim()).filter(Boolean);
  const exact = new Set(parts.filter((part) => methods.some((method) => method.toLowerCase() === part)));
  const fits = (name) => parts.some((part) => (exact.has(part) && parts.length === 1 ? name === part : name.includes(part)));
  wanted = parts.length ? new Set(methods.filter((method) => fits(method.toLowerCase()))) : null;
  filter.form.querySelector("output").textContent = wanted === null ? "" : `${wanted.size} of ${methods.length}`;
  for (const table of tables) table.show();
  redraw();
}

const tables = [...document.querySelectorAll(".table")].map((place) => new Paged(place));
if (filter) {
  filter.addEventListener("input", choose);
  filter.form.addEventListener("submit", (event) => event.preventDefault());
}

// -- what the heads of columns mean -----------------------------------------------------------------------------------

const tip = document.getElementById("tip");

function explain(button) {
  tip.textContent = button.dataset.help;
  tip.hidden = false;
  button.setAttribute("aria-describedby", "tip");
  const at = button.getBoundingClientRect();
  const left = Math.min(at.left, document.documentElement.clientWidth - tip.offsetWidth - 12);
  tip.style.left = `${Math.max(8, left) + scrollX}px`;
  tip.style.top = `${at.top + scrollY - tip.offsetHeight - 8}px`;
}

function silence() {
  tip.hidden = true;
  for (const button of document.querySelectorAll("[aria-describedby=tip]")) button.removeAttribute("aria-describedby");
}

for (const button of document.querySelectorAll("[data-help]")) {
  for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, () => explain(button));
  for (const event of ["pointerleave", "blur"]) button.addEventListener(event, silence);
}
addEventListener("keydown", (event) => { if (event.key === "Escape") silence(); });

// -- figures ----------------------------------------------------------------------------------------------------------

const PAPER_WIDTH = 680;  // of a figure, in pixels
let printing = false;

// Plotly comes compressed, and is made ready when the first figure is looked at.
let library = null;

function ready() {
  library ??= inflated(document.getElementById("plotly").textContent).then((code) => {
    const script = document.createElement("script");
    script.textContent = code;
    document.head.append(script);
  });
  return library;
}

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// They take their colours from the page, and follow it between light and dark.
function themed() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  if (printing) return { ink: "#1c2128", grid: "#e6e8ec", card: "#ffffff", font: getComputedStyle(document.body).fontFamily };
  return { ink: color("--ink"), grid: color("--grid"), card: color("--card"), font: getComputedStyle(document.body).fontFamily };
}

function painted(layout) {
  const theme = themed();
  const result = { ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
  result.font = { color: theme.ink, family: theme.font, size: 12 };
  result.hoverlabel = { bgcolor: theme.card, bordercolor: theme.grid, font: { color: theme.ink, family: theme.font } };
  for (const name of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(name)) result[name] = { ...layout[name], gridcolor: theme.grid, linecolor: theme.grid };
  }
  if (matchMedia("(pointer: coarse)").matches) result.dragmode = false;  // fingers scroll the page
  if (printing) Object.assign(result, { width: PAPER_WIDTH, autosize: false });
  return result;
}

// Names in figures are escaped, as plotly reads HTML in them.
const escaped = (text) => text.replace(/[&<>"']/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" })[c]);
const inFigures = new Set(methods.map(escaped));

function chosen(figure) {
  if (wanted === null) return figure;
  const stay = new Set([...wanted].map(escaped));
  const leaves = (name) => !inFigures.has(name) || stay.has(name);
  let most = 0;
  const data = figure.data.filter((trace) => leaves(trace.name)).map((trace) => {
    const names = ["y", "x", "customdata", "text"].map((key) => trace[key])
      .find((values) => Array.isArray(values) && values.some((value) => inFigures.has(value)));
    if (!names || names.every(leaves)) return trace;
    most = Math.max(most, new Set(names).size - new Set(names.filter(leaves)).size);
    return kept(trace, names.map(leaves));
  });
  const layout = { ...figure.layout };
  if (most && layout.meta?.row) layout.height -= most * layout.meta.row;
  if (layout.yaxis?.categoryarray) layout.yaxis = { ...layout.yaxis, categoryarray: layout.yaxis.categoryarray.filter(leaves) };
  return { data, layout };
}

// Every list in a trace that has an entry for each name, without those that are left out.
function kept(value, mask) {
  if (Array.isArray(value)) return value.length === mask.length ? value.filter((_, place) => mask[place]) : value;
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, of]) => [key, key === "colorscale" ? of : kept(of, mask)]));
}

const figures = new Map();
for (const source of document.querySelectorAll("script[data-for]")) {
  figures.set(document.getElementById(source.dataset.for), source);
}

function draw(place) {
  const figure = chosen(JSON.parse(figures.get(place).textContent));
  place.style.minHeight = "0";
  Plotly.react(place, figure.data, painted(figure.layout), { responsive: !printing, displayModeBar: false });
}

const drawn = () => [...figures.keys()].filter((place) => place.classList.contains("js-plotly-plot"));
function redraw() { drawn().forEach(draw); }

const visible = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    visible.unobserve(target);
    ready().then(() => draw(target)).catch(() => {});  // the words of the figure stay
  }
}, { rootMargin: "400px" });
for (const place of figures.keys()) visible.observe(place);
// Paper does not wait for it. (Safari has no idle callbacks.)
if (figures.size) (window.requestIdleCallback ?? setTimeout)(() => { ready().catch(() => {}); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// -- paper: everything unfolded and drawn -----------------------------------------------------------------------------

let unfolded = [];
addEventListener("beforeprint", () => {
  silence();
  unfolded = [...document.querySelectorAll("details:not([open])")].filter((one) => !one.closest("#provenance"));
  for (const one of unfolded) one.open = true;
  printing = true;
  if (window.Plotly) [...figures.keys()].forEach(draw);
});
addEventListener("afterprint", () => {
  printing = false;
  for (const one of unfolded) one.open = false;
  redraw();
});

// -- a run that goes on -----------------------------------------------------------------------------------------------

const live = document.querySelector("[data-live]");

async function ask() {
  const told = live.querySelector("p");
  try {
    const state = await (await fetch("/state.json", { cache: "no-store" })).json();
    told.textContent = state.said;
    if (state.results !== live.dataset.live) {
      if (live.dataset.waiting) location.reload();  // nobody reads anything yet
      live.querySelector(".again").hidden = false;
    }
  } catch {
    told.textContent = "The server of this page has ended; what is below stays.";
  }
}
if (live) { ask(); setInterval(ask, 2000); }
