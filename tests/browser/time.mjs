// When a page can be used: node time.mjs CHROMIUM PAGE.html prints milliseconds since the navigation began.

import { pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";

const [chromium, path] = process.argv.slice(2);
const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage();
await page.setViewport({ width: 1400, height: 1000 });
await page.evaluateOnNewDocument(() => {
  // A table has been sorted, as somebody would who cannot wait, and the browser has shown it.
  addEventListener("DOMContentLoaded", () => {
    document.querySelector("th:nth-child(2) button").click();
    requestAnimationFrame(() => requestAnimationFrame(() => { window.sortedAt = performance.now(); }));
  });
});
await page.goto(pathToFileURL(path).href, { waitUntil: "load" });
await page.waitForFunction(() => window.sortedAt);
const sorted = await page.evaluate(() => window.sortedAt);
const opened = await page.evaluate(async () => {
  const before = performance.now();
  const fold = [...document.querySelectorAll("details")].find((one) => one.querySelector(".plot"));
  if (!fold) return 0;
  fold.open = true;
  fold.scrollIntoView({ behavior: "instant" });
  while (!fold.querySelector(".plot svg.marks")) await new Promise((done) => setTimeout(done, 20));
  return performance.now() - before;
});
const height = await page.evaluate(() => document.documentElement.scrollHeight);
console.log(JSON.stringify({ "sorted after ms": sorted, "first folded figure after ms": opened, "pixels high": height }));
await browser.close();
