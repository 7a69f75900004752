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
