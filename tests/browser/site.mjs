// Looks at pages of the site: node site.mjs CHROMIUM OUT PAGE.html …
//
// Each page at 390 px in light and at 1400 px in dark: what axe-core finds, how much wider than its window it is, what it
// asks of the network, errors, and whether a click on a head sorts its first long table. Screenshots of the first screen go into OUT. Prints one JSON object: PAGE -> findings.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";

const [chromium, out, ...paths] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const LOOKS = [
  ["390", "light", { width: 390, height: 844, isMobile: true, hasTouch: true, deviceScaleFactor: 1 }],
  ["1400", "dark", { width: 1400, height: 1000 }],
];

const browser = await puppeteer.launch({
  executablePath: chromium,
  args: ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"],
  protocolTimeout: 0,  // the mathematics has ten thousand elements
});
const result = {};
for (const path of paths) {
  const found = { errors: [], requests: [], axe: [], overflow: {} };
  result[path] = found;
  for (const [size, scheme, viewport] of LOOKS) {
    const page = await browser.newPage();
    page.on("pageerror", (error) => found.errors.push(String(error)));
    page.on("request", (request) => { if (!/^(file|data|blob):/.test(request.url())) found.requests.push(request.url()); });
    await page.setViewport(viewport);
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await page.goto(pathToFileURL(path).href, { waitUntil: "load" });
    if (scheme === "dark") await page.evaluate(() => document.body.setAttribute("data-md-color-scheme", "slate"));
    await page.evaluate(() => new Promise((done) => setTimeout(done, 600)));
    await page.screenshot({ path: `${out}/${basename(path, ".html")}-${size}.png` });
    found.overflow[size] = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => window.axe.run({ exclude: ["math"] }, { resultTypes: ["violations"] }));
    for (const one of violations) {
      const nodes = one.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`);
      found.axe.push({ where: `${size} ${scheme}`, id: one.id, impact: one.impact, count: one.nodes.length, nodes });
    }
    found.unsorted = (found.unsorted ?? 0) + (await page.evaluate(() => {
      const table = [...document.querySelectorAll("article table")].find((one) => one.querySelector("th > button"));
      if (!table) return 0;
      const values = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent.trim());
      table.querySelector("th > button").click();
      const descending = values();
      table.querySelector("th > button").click();
      return Number(descending.join() === values().join() || descending.join() !== values().reverse().join());
    }));
    console.error(`${basename(path)} ${size}: ${Math.round(performance.now())} ms`);
    await page.close();
  }
}
await browser.close();
console.log(JSON.stringify(result));
