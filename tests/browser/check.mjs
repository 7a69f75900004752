// Looks at pages as people do: node check.mjs CHROMIUM OUT NAME=PAGE.html …
//
// For each page screenshots at 1400 and 390 px, light and dark, and as it is printed, into OUT; a walk by keyboard; and
// axe-core's findings, folded and unfolded. What was found is printed as one JSON object: NAME -> findings.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";

const [chromium, out, ...named] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WIDE = { width: 1400, height: 1000 };
const PHONE = { width: 390, height: 844, isMobile: true, hasTouch: true, deviceScaleFactor: 1 };
const settled = (page) => page.evaluate(() => new Promise((done) => setTimeout(done, 600)));

async function opened(browser, url, viewport, scheme, found) {
  const page = await browser.newPage();
  page.on("pageerror", (error) => found.errors.push(String(error)));
  page.on("console", (message) => { if (message.type() === "error") found.errors.push(message.text()); });
  page.on("request", (request) => { if (!/^(file|data|blob):/.test(request.url())) found.requests.push(request.url()); });
  await page.setViewport(viewport);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(url, { waitUntil: "load" });
  return page;
}

// How long until the page does what it is told, from the first byte: rows have been sorted, and the browser idles.
async function interactive(page) {
  return page.evaluate(() => new Promise((done) => {
    const button = document.querySelector("th button");
    button.click();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
  }));
}

// Figures that are drawn, and the places for them; on a busy machine figures take their time.
async function drawn(page) {
  const all = () => document.querySelectorAll(".plot svg.marks").length === document.querySelectorAll(".plot").length;
  await page.waitForFunction(all, { timeout: 60000 }).catch(() => {});
  return page.evaluate(() => [document.querySelectorAll(".plot svg.marks").length, document.querySelectorAll(".plot").length]);
}

async function unfold(page) {
  await page.evaluate(() => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  await page.evaluate(async () => {
    for (let y = 0; y < document.documentElement.scrollHeight; y += 700) {
      scrollTo({ top: y, behavior: "instant" });
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 60))));
    }
    scrollTo({ top: 0, behavior: "instant" });
  });
  await settled(page);
}

async function audit(page, what, found) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const one of violations) {
    const nodes = one.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`);
    found.axe.push({ where: what, id: one.id, impact: one.impact, count: one.nodes.length, nodes });
  }
}

// By Tab alone: what can be reached, in order, until the focus comes back to the start.
async function walk(page) {
  await page.evaluate(() => { document.activeElement?.blur(); scrollTo({ top: 0, behavior: "instant" }); });
  const seen = [];
  for (let step = 0; step < 400; step += 1) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const one = document.activeElement;
      if (!one || one === document.body) return null;
      const style = getComputedStyle(one);
      const box = one.getBoundingClientRect();
      return {
        kind: one.matches("th button") ? "sort" : one.matches(".skip") ? "skip" : one.localName,
        outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
        visible: box.width > 0 && box.height > 0,
        first: one.dataset.walked === undefined && (one.dataset.walked = "1", true),
      };
    });
    if (at === null || !at.first) break;
    seen.push(at);
  }
  const sorted = await page.evaluate(() => {
    const button = document.querySelector("th:nth-child(2) button") ?? document.querySelector("th button");
    button.focus();
    return [button.textContent, !document.getElementById("tip").hidden || !button.dataset.help];
  });
  const state = () => page.evaluate(() => document.activeElement.closest("th").getAttribute("aria-sort"));
  const orders = [];
  for (const key of ["Enter", "Enter", "Space"]) {
    await page.keyboard.press(key);
    orders.push(await state());
  }
  const opened = await page.evaluate(() => {
    const summary = document.querySelector("details:not([open]) > summary");
    summary?.focus();
    return Boolean(summary);
  });
  if (opened) await page.keyboard.press("Enter");
  const unfolded = await page.evaluate(() => document.activeElement.parentElement.open ?? false);
  return { seen, tip: sorted[1], orders, unfolded: !opened || unfolded };
}

async function filtered(page) {
  const first = await page.evaluate(() => document.querySelector("#methods option")?.value ?? null);
  if (first === null) return null;
  await page.focus("#filter");
  await page.keyboard.type(first);
  await settled(page);
  const left = await page.evaluate(() => {
    const rows = [...document.querySelector("table").tBodies[0].rows].filter((row) => row.offsetParent);
    const ticks = [...document.querySelectorAll(".plot .role-axis-label text")].map((tick) => tick.textContent);
    return { rows: rows.map((row) => row.dataset.method), ticks, told: document.querySelector("output").textContent };
  });
  await page.evaluate(() => { const box = document.getElementById("filter"); box.value = ""; box.dispatchEvent(new Event("input")); });
  return { first, ...left };
}

const browser = await puppeteer.launch({
  executablePath: chromium,
  args: ["--no-sandbox", "--disable-gpu", "--disable-3d-apis", "--hide-scrollbars"],  // no WebGL
});
const result = {};
for (const pair of named) {
  const [name, path] = pair.split("=");
  const url = pathToFileURL(path).href;
  const found = { errors: [], requests: [], axe: [], overflow: {} };
  result[name] = found;
  for (const [size, viewport] of [["1400", WIDE], ["390", PHONE]]) {
    for (const scheme of ["light", "dark"]) {
      const page = await opened(browser, url, viewport, scheme, found);
      if (size === "1400" && scheme === "light") found.interactive = await interactive(page);
      if (size === "1400" && scheme === "light") await page.reload({ waitUntil: "load" });
      await settled(page);
      await unfolded(page, out && `${out}/${name}-${size}-${scheme}`, size, found, scheme);
      await page.close();
    }
  }
  const page = await opened(browser, url, WIDE, "light", found);
  await settled(page);
  found.walk = await walk(page);
  found.filter = await filtered(page);
  await page.setViewport({ width: 720, height: 1000 });  // A4 less its margins
  await page.emulateMediaType("print");
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  await settled(page);
  found.overflow.print = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  found.printed = await drawn(page);
  await page.screenshot({ path: `${out}/${name}-print.png`, fullPage: true });
  await page.evaluate(() => dispatchEvent(new Event("afterprint")));
  await page.pdf({ path: `${out}/${name}.pdf`, format: "A4" });
  await page.close();
}
await browser.close();
console.log(JSON.stringify(result));

async function unfolded(page, stem, size, found, scheme) {
  await page.evaluate(() => scrollTo({ top: 300, behavior: "instant" }));
  await settled(page);
  await page.evaluate(() => scrollTo({ top: 0, behavior: "instant" }));
  await page.screenshot({ path: `${stem}.png`, fullPage: true });
  found.overflow[`${size} ${scheme}`] = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  await audit(page, `${size} ${scheme}`, found);
  await unfold(page);
  await page.screenshot({ path: `${stem}-unfolded.png`, fullPage: true });
  found.overflow[`${size} ${scheme} unfolded`] = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  found.drawn = await drawn(page);
  await audit(page, `${size} ${scheme} unfolded`, found);
}
