// Tables, code and formulas that scroll by themselves can be scrolled by keyboard, too.
const scrolling = ".md-typeset__scrollwrap, pre > code, math[display='block']";
function reachable() {
  document.querySelectorAll(scrolling).forEach((part) => {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  });
  document.querySelectorAll("nav.md-code__nav").forEach((part, place) => { part.ariaLabel = `Code ${place + 1}`; });
}
addEventListener("load", () => setTimeout(reachable));
addEventListener("resize", reachable);

// Long tables are sorted by a click on a column's head, the largest number first, and filtered by a text.
const long = 10; // rows
const number = (text) => parseFloat(text.replace("−", "-").replaceAll(",", ""));
function compare(one, other) {
  const [a, b] = [number(one), number(other)];
  if (isNaN(a) && isNaN(b)) return other.localeCompare(one);
  return isNaN(a) ? -1 : isNaN(b) ? 1 : a - b;
}
function sort(table, column, head) {
  const up = head.ariaSort === "descending";
  table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
  head.ariaSort = up ? "ascending" : "descending";
  const text = (row) => row.cells[column].textContent.trim();
  const rows = [...table.tBodies[0].rows].sort((a, b) => compare(text(a), text(b)) * (up ? 1 : -1));
  table.tBodies[0].append(...rows);
}
function sortable(table) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    button.onclick = () => sort(table, column, head);
    head.append(button);
  });
  const filter = document.createElement("input");
  Object.assign(filter, { type: "search", placeholder: "Filter rows", ariaLabel: "Filter the rows of the table below" });
  filter.className = "filter";
  filter.oninput = () => {
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.textContent.toLowerCase().includes(filter.value.toLowerCase());
    }
  };
  (table.closest(".md-typeset__scrollwrap") ?? table).before(filter);
}
addEventListener("load", () => {
  document.querySelectorAll("article table").forEach((table) => {
    if (table.tBodies[0]?.rows.length >= long) sortable(table);
  });
});
