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

function tell(text, at) {
  tip.textContent = text;
  tip.hidden = false;
  const left = Math.min(at.left, document.documentElement.clientWidth - tip.offsetWidth - 12);
  tip.style.left = `${Math.max(8, left) + scrollX}px`;
  tip.style.top = `${at.top + scrollY - tip.offsetHeight - 8}px`;
}

function explain(button) {
  tell(button.dataset.help, button.getBoundingClientRect());
  button.setAttribute("aria-describedby", "tip");
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

// -- charts -----------------------------------------------------------------------------------------------------------

const PAPER_WIDTH = 650;  // of a chart, in pixels
const NARROWEST = 220;  // of a panel beside others
let printing = false;

// Vega comes compressed, and is made ready when the first chart is looked at.
let library = null;

function ready() {
  library ??= inflated(document.getElementById("vega").textContent).then((code) => {
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

// Charts take their colours from the page, and follow it between light and dark.
function painted(text) {
  const style = getComputedStyle(document.documentElement);
  const colors = printing ? {} : { "#1f2328": "--ink", "#e6e8ec": "--grid", "#ffffff": "--card" };
  for (const [color, name] of Object.entries(colors)) text = text.replaceAll(color, style.getPropertyValue(name).trim());
  const spec = JSON.parse(text);
  spec.config.font = getComputedStyle(document.body).fontFamily;
  return spec;
}

// The scales of colours and shapes have the entries of the legend.
const scales = (part) => part.layer.flatMap(({ encoding }) => [encoding?.color, encoding?.shape]).filter((channel) => channel?.legend);

// What belongs to a method that the filter leaves out goes: rows, names on axes, and entries of legends.
function chosen(spec) {
  const stays = (value) => wanted === null || !known.has(value) || wanted.has(value);
  for (const part of spec.concat) {
    for (const { data } of part.layer) data.values = data.values.filter((row) => Object.values(row).every(stays));
    for (const { scale } of scales(part)) {
      scale.range = scale.range.filter((_, place) => stays(scale.domain[place]));
      scale.domain = scale.domain.filter(stays);
    }
    for (const [axis, { scale }] of Object.entries(part.encoding)) {
      const names = scale.domain ?? [];
      if (names.length) scale.domain = names.filter(stays);
      if (axis === "y") part.height -= names.filter((name) => !stays(name)).length * spec.usermeta.row;
    }
  }
  return spec;
}

// Panels share the room, and stand below each other where it is narrow; a legend has as many columns as fit.
function fitted(spec, room, width) {
  const { shares, ratios, entry } = spec.usermeta;
  spec.columns = Math.max(1, Math.min(spec.columns, Math.floor(width / NARROWEST)));
  const whole = shares.slice(0, spec.columns).reduce((sum, share) => sum + share, 0);
  spec.concat.forEach((part, place) => {
    part.width = Math.max(60, spec.columns === 1 ? room : (room * shares[place]) / whole);
    if (ratios[place]) {
      part.width = Math.min(part.width, part.height * ratios[place]);
      part.height = part.width / ratios[place];
    }
    const cells = part.encoding.x?.scale.domain?.length ?? 0;
    if (part.width < 28 * cells) part.layer = part.layer.filter(({ mark }) => mark.type !== "text");  // they have no room
    for (const { legend } of scales(part)) legend.columns = Math.max(1, Math.floor(width / entry));
  });
  return spec;
}

const embedded = new Map();

async function show(place, spec) {
  embedded.get(place)?.finalize();
  const tooltip = (_, event, item, text) => (text ? tell(text, { left: event.clientX + 12, top: event.clientY }) : silence());
  embedded.set(place, await vegaEmbed(place, spec, { mode: "vega-lite", renderer: "svg", actions: false, logLevel: 1, tooltip }));
  const svg = place.querySelector("svg");
  svg.setAttribute("aria-hidden", "true");  // the place has the words
  return svg.getBoundingClientRect().width;
}

// What stands beside the panels, such as names, takes a width that is known once it is drawn. Nothing here waits for
// anything but promises that are kept at once, so that a chart is drawn before paper is.
const beside = new Map();

async function draw(place) {
  place.style.minHeight = "0";
  const text = figures.get(place).textContent;
  const width = (printing ? PAPER_WIDTH : place.clientWidth) - 1;
  const drawn = (room) => show(place, fitted(chosen(painted(text)), room, width));
  let room = width - (beside.get(place) ?? 0.3 * width);
  const missing = width - (await drawn(room));
  if (Math.abs(missing) > 1) await drawn(room += missing);
  beside.set(place, width - room);
}

const figures = new Map();
for (const source of document.querySelectorAll("script[data-for]")) {
  figures.set(document.getElementById(source.dataset.for), source);
}

function redraw() { [...embedded.keys()].filter((place) => place.clientWidth).forEach(draw); }

const visible = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    visible.unobserve(target);
    ready().then(() => draw(target)).catch(() => {});  // the words of the chart stay
  }
}, { rootMargin: "400px" });
for (const place of figures.keys()) visible.observe(place);
// Paper does not wait for it. (Safari has no idle callbacks.)
if (figures.size) (window.requestIdleCallback ?? setTimeout)(() => { ready().catch(() => {}); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

let across = innerWidth;
let resizing = 0;
addEventListener("resize", () => {
  if (across === innerWidth) return;  // a phone that scrolls
  across = innerWidth;
  clearTimeout(resizing);
  resizing = setTimeout(redraw, 150);
});

// -- paper: everything unfolded and drawn -----------------------------------------------------------------------------

let unfolded = [];
addEventListener("beforeprint", () => {
  silence();
  unfolded = [...document.querySelectorAll("details:not([open])")].filter((one) => !one.closest("#provenance"));
  for (const one of unfolded) one.open = true;
  printing = true;
  if (window.vegaEmbed) [...figures.keys()].forEach(draw);
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
