"use strict";

// Sorting: a click on a header sorts by the cells' keys, best first; a second click turns the order around.
for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const descending = header.getAttribute("aria-sort") !== "descending" && column > 0
        || header.getAttribute("aria-sort") === "ascending";
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const body = table.tBodies[0];
      const key = (row) => row.cells[column].dataset.key;
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === "");  // what is not there comes last in either order
        const order = column === 0 ? x.localeCompare(y) : Number(x) - Number(y);
        return descending ? -order : order;
      });
      body.append(...rows);
    });
  });
}

// Figures take their colours from the page, and follow it between light and dark.
function themed() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  return { ink: color("--ink"), grid: color("--grid"), card: color("--card"), font: getComputedStyle(document.body).fontFamily };
}

function paint(layout) {
  const theme = themed();
  layout.font = { color: theme.ink, family: theme.font, size: 12 };
  layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
  layout.hoverlabel = { bgcolor: theme.card, bordercolor: theme.grid, font: { color: theme.ink, family: theme.font } };
  for (const name of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(name)) Object.assign(layout[name], { gridcolor: theme.grid, linecolor: theme.grid });
  }
  return layout;
}

const figures = new Map();
for (const source of document.querySelectorAll("script[data-for]")) {
  figures.set(document.getElementById(source.dataset.for), JSON.parse(source.textContent));
}

function draw(place) {
  const figure = figures.get(place);
  Plotly.react(place, figure.data, paint(figure.layout), { responsive: true, displayModeBar: false });
}

const visible = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    visible.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "600px" });
for (const place of figures.keys()) visible.observe(place);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const place of figures.keys()) if (place.classList.contains("js-plotly-plot")) draw(place);
});
addEventListener("beforeprint", () => { for (const place of figures.keys()) draw(place); });
