// @ts-check
// The page: which view is open, what it follows, and the keys.

import { el, notice } from "./dom.js";
import { Live } from "./live.js";
import { drawQueues } from "./queues.js";
import { TopologyView } from "./topology.js";
import { drawWorkload, drawWorkloads } from "./workloads.js";

/** @typedef {{view: string, rest: string[], search: string, host: string}} Route */

const TABS = /** @type {[string, string][]} */ ([["queues", "Queues"], ["topology", "Topology"], ["workloads", "Workloads"]]);

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const view = byId("view");
const search = /** @type {HTMLInputElement} */ (byId("search"));
const topology = new TopologyView(view);
const live = new Live(() => draw(), (words, bad) => {
  byId("state").textContent = words;
  byId("state").className = bad ? "bad" : "";
});
let asking = new AbortController();

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

function topologyName() {
  return route.rest[0] || live.answers.get("topologies")?.items?.[0]?.metadata.name || "";
}

/** @returns {string[]} */
function feeds() {
  if (route.view === "queues") return ["queues"];
  if (route.view === "workloads") return ["workloads"];
  if (route.view === "topology") return topologyName() ? ["topologies", `map/${topologyName()}`] : ["topologies"];
  return [];
}

function draw() {
  live.follow(feeds());
  const { answers } = live;
  if (route.view === "queues") drawQueues(view, answers.get("queues"), search.value);
  else if (route.view === "workloads") drawWorkloads(view, answers.get("workloads"), search.value);
  else if (route.view === "topology") {
    const name = topologyName();
    topology.draw(answers.get("topologies"), answers.get(`map/${name}`), name, search.value, route.host, (host) => {
      route = { ...route, host };
      history.replaceState(null, "", addressOf(route));
    });
  }
}

function go() {
  route = routeOf(location.hash);
  asking.abort();
  asking = new AbortController();
  topology.key = "";
  view.replaceChildren();
  search.value = route.search;
  for (const tab of byId("tabs").children) {
    const name = route.view === "workload" ? "workloads" : route.view;
    if (tab.getAttribute("data-view") === name) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  document.title = `${TABS.find(([name]) => name === route.view)?.[1] ?? route.rest.join("/")} - kqueue`;
  draw();
  if (route.view === "workload" && route.rest.length === 2) follow(route.rest[0], route.rest[1], asking.signal);
  else if (!TABS.some(([name]) => name === route.view)) view.replaceChildren(notice(`The page has no view ${route.view}.`));
}

/**
 * Keep the page of a workload fresh until another view is opened.
 * @param {string} namespace
 * @param {string} name
 * @param {AbortSignal} signal
 */
async function follow(namespace, name, signal) {
  while (!signal.aborted) {
    try {
      await drawWorkload(view, namespace, name, signal);
    } catch (error) {
      if (!signal.aborted) view.replaceChildren(notice(`no answer: ${error}`));
    }
    await new Promise((resolve) => setTimeout(resolve, 5000));
  }
}

/** @param {string} theme `light` or `dark` */
function paint(theme) {
  document.documentElement.dataset.theme = theme;
  topology.key = "";
  draw();
}

function otherTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", theme);
  paint(theme);
}

byId("tabs").append(...TABS.map(([name, title], number) => el("a", { href: `#/${name}`, "data-view": name, title: `Key ${number + 1}` }, title)));
byId("theme").addEventListener("click", otherTheme);
search.addEventListener("input", () => {
  route = { ...route, search: search.value };
  history.replaceState(null, "", addressOf(route));
  draw();
});
addEventListener("hashchange", go);
addEventListener("resize", draw);
addEventListener("keydown", (event) => {
  const writes = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "Escape" && document.activeElement === search) search.blur();
  if (writes || event.ctrlKey || event.metaKey || event.altKey) return;
  const tab = TABS[Number(event.key) - 1];
  if (tab) location.hash = `#/${tab[0]}`;
  else if (event.key === "/") {
    event.preventDefault();
    search.focus();
  } else if (event.key === "t") otherTheme();
});
document.documentElement.dataset.theme = localStorage.getItem("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
go();
