// @ts-check
// The page: which view is open, what it follows, and the keys.  A view's module is loaded when the view is opened.

import { el, notice } from "./dom.js";
import { Live } from "./live.js";

/** @typedef {{view: string, rest: string[], search: string, host: string}} Route */
/** @typedef {Map<string, Record<string, any>>} Answers by feed */
/** @typedef {(change: Partial<Route>) => void} Moved tells the page where its view is now, for the address */
/** @typedef {{feeds: (answers: Answers, route: Route) => string[], draw: (answers: Answers, route: Route) => void, close?: () => void}} View */
/** @typedef {(root: HTMLElement, moved: Moved) => View} Maker */

/** @type {[string, string, () => Promise<Maker>][]} */
const TABS = [
  ["queues", "Queues", async () => {
    const { QueuesView } = await import("./queues.js");
    return (root) => new QueuesView(root);
  }],
  ["topology", "Topology", async () => {
    const { TopologyView } = await import("./topology.js");
    return (root, moved) => new TopologyView(root, moved);
  }],
  ["workloads", "Workloads", async () => {
    const { WorkloadsView } = await import("./workloads.js");
    return (root) => new WorkloadsView(root);
  }],
  ["starts", "Starts", async () => {
    const { StartsView } = await import("./starts.js");
    return (root) => new StartsView(root);
  }],
  ["trends", "Trends", async () => {
    const { TrendsView } = await import("./trends.js");
    return (root) => new TrendsView(root);
  }],
];
/** @type {Map<string, () => Promise<Maker>>} */
const MAKERS = new Map(TABS.map(([name, , load]) => [name, load]));
MAKERS.set("workload", async () => {
  const { WorkloadView } = await import("./workload.js");
  return (root) => new WorkloadView(root);
});

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const view = byId("view");
const search = /** @type {HTMLInputElement} */ (byId("search"));
const live = new Live(() => draw(), (words, bad) => {
  byId("state").textContent = words;
  byId("state").className = bad ? "bad" : "";
});
/** @type {View | null} */
let open = null;
let opened = 0;

/**
 * Return the route of an address: `#/view/rest?search=...&host=...`.
 * @param {string} hash
 * @returns {Route}
 */
export function routeOf(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const params = new URLSearchParams(query);
  return { view: name || "queues", rest, search: params.get("search") ?? "", host: params.get("host") ?? "" };
}

/** @param {Route} route */
function addressOf({ view: name, rest, search: words, host }) {
  const params = new URLSearchParams();
  if (words) params.set("search", words);
  if (host) params.set("host", host);
  const query = params.toString();
  return `#/${[name, ...rest].map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

let route = routeOf(location.hash);

/** @param {Partial<Route>} change */
function moved(change) {
  route = { ...route, ...change };
  history.replaceState(null, "", addressOf(route));
}

function draw() {
  if (!open) return;
  live.follow(open.feeds(live.answers, route));
  open.draw(live.answers, route);
}

/** Open the view of the address anew. */
async function go() {
  const turn = ++opened;
  route = routeOf(location.hash);
  open?.close?.();
  open = null;
  view.replaceChildren();
  search.value = route.search;
  for (const tab of byId("tabs").children) {
    const name = route.view === "workload" ? "workloads" : route.view;
    if (tab.getAttribute("data-view") === name) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  document.title = `${TABS.find(([name]) => name === route.view)?.[1] ?? route.rest.join("/")} - kqueue`;
  const load = MAKERS.get(route.view);
  if (!load) {
    live.follow([]);
    return void view.replaceChildren(notice(`The page has no view ${route.view}.`));
  }
  try {
    const make = await load();
    if (turn !== opened) return; // another view was opened meanwhile
    open = make(view, moved);
    draw();
  } catch (error) {
    view.replaceChildren(notice(`the view cannot be loaded: ${error}`));
  }
}

function otherTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", theme);
  document.documentElement.dataset.theme = theme;
  go();
}

const header = /** @type {HTMLElement} */ (document.querySelector("header"));
new ResizeObserver(() => document.documentElement.style.setProperty("--header", `${header.offsetHeight}px`)).observe(header);
byId("tabs").append(...TABS.map(([name, title], number) => el("a", { href: `#/${name}`, "data-view": name, title: `Key ${number + 1}` }, title)));
byId("theme").addEventListener("click", otherTheme);
search.addEventListener("input", () => {
  moved({ search: search.value });
  draw();
});
addEventListener("hashchange", go);
addEventListener("resize", draw);
addEventListener("keydown", (event) => {
  const writes = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "Escape" && document.activeElement === search) search.blur();
  if (writes || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const tab = TABS[Number(event.key) - 1];
  if (tab) location.hash = `#/${tab[0]}`;
  else if (event.key === "/") {
    event.preventDefault();
    search.focus();
  } else if (event.key === "t") otherTheme();
});
document.documentElement.dataset.theme = localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
go();
