// @ts-check
// The heat map of a topology: one cell a host, filled from below by what workloads hold and from above by foreign pods.

import { askWhatIf } from "./ask.js";
import { colour, el, notice, shown, workloadLink } from "./dom.js";
import { layout } from "./layout.js";

/** @typedef {Record<string, any>} Json */
/** @typedef {import("./main.js").Route} Route */
/** @typedef {import("./main.js").Answers} Answers */

const STATES = /** @type {[string, string][]} */ ([
  ["free", "free"],
  ["held", "held by a workload (filled from below)"],
  ["reserved", "reserved for a workload, no pod is there yet (striped)"],
  ["foreign", "used by foreign pods (from above)"],
  ["broken", "gets no pods: not ready, cordoned, or without a label (crossed)"],
]);

/**
 * Return an amount for people: cpu is in thousandths, bytes stay numbers.
 * @param {number} value
 * @param {string} resource
 */
export function words(value, resource) {
  return resource === "cpu" ? String(value / 1000) : String(value);
}

/** One flavor's canvas with its tip, its pick and its summary. */
class FlavorMap {
  /** @param {(host: string) => void} onPick */
  constructor(onPick) {
    this.onPick = onPick;
    /** @type {Json | null} */
    this.flavor = null;
    /** @type {import("./layout.js").Layout | null} */
    this.place = null;
    this.frame = "";
    /** @type {string[] | null} */
    this.names = null;
    this.picked = -1;
    this.search = "";
    this.title = el("h2");
    this.canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { tabindex: "0", role: "img" }));
    this.tip = el("div", { class: "tip", hidden: true });
    this.pickedLine = el("p", { class: "picked", "aria-live": "polite" });
    this.questions = el("div", { class: "tools" });
    this.asked = "";
    this.root = el("section", {}, this.title, el("div", { class: "map" }, this.canvas, this.tip), this.pickedLine, this.questions);
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => (this.tip.hidden = true));
    this.canvas.addEventListener("click", (event) => this.pick(this.leafAt(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /**
   * Draw an answer.
   * @param {Json} flavor
   * @param {string} search
   * @param {number} width
   */
  show(flavor, search, width) {
    this.flavor = flavor;
    const wanted = search.toLowerCase();
    const frame = `${width} ${window.innerHeight} ${JSON.stringify(flavor.leftOut)}`;
    const isNew = frame !== this.frame || this.names !== flavor.leaves.name || !this.place;
    if (isNew) {
      this.place = layout(flavor, width, Math.max(320, window.innerHeight - 260));
      this.frame = frame;
      this.names = flavor.leaves.name; // a change keeps this array, and a map that came whole has another one
    }
    const changed = isNew || wanted || this.search ? null : flavor.changed;
    this.search = wanted;
    const sum = (/** @type {string} */ column) => flavor.leaves[column].reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
    const part = (/** @type {string} */ column) => words(sum(column), flavor.resource);
    const waits = (flavor.leaves.unbound ?? []).reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
    const summary = `${flavor.leaves.name.length} hosts; ${flavor.resource}: ${part("free")} free, ${part("held")} held and ${part("foreign")} foreign of ${part("total")}; ${waits} reserved and not running; ${flavor.leftOut.length} ${flavor.leftOut.length === 1 ? "node" : "nodes"} left out`;
    this.title.replaceChildren(`Flavor ${shown(flavor.name)} `, el("small", { class: "quiet" }, summary));
    this.canvas.setAttribute("aria-label", `Map of flavor ${flavor.name}: ${summary}. Arrow keys pick a host.`);
    if (changed) this.drawCells(this.pen(), changed);
    else this.draw();
    flavor.changed = undefined; // another drawing of the same answer, such as after a key, is whole
    this.tellPick();
  }

  pen() {
    return /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
  }

  draw() {
    const { flavor, place } = this;
    if (!flavor || !place) return;
    const scale = window.devicePixelRatio || 1;
    const canvas = this.canvas;
    canvas.width = Math.ceil(place.width * scale);
    canvas.height = Math.ceil(place.height * scale);
    canvas.style.width = `${place.width}px`;
    canvas.style.height = `${place.height}px`;
    const pen = this.pen();
    pen.scale(scale, scale);
    const side = this.side();
    pen.strokeStyle = colour("line");
    for (const rack of place.racks) pen.strokeRect(rack.x + 0.5, rack.y + 0.5, rack.width - 1, rack.height - 1);
    pen.fillStyle = colour("dim");
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    for (const label of place.labels) pen.fillText(shown(label.name).slice(0, 120), label.x, label.y);
    const count = flavor.leaves.name.length;
    this.drawCells(pen, Array.from({ length: count }, (_, leaf) => leaf));
    pen.strokeStyle = colour("broken");
    for (const node of place.leftOut) {
      pen.strokeRect(node.x + 0.5, node.y + 0.5, side - 1, side - 1);
      pen.beginPath();
      pen.moveTo(node.x, node.y);
      pen.lineTo(node.x + side, node.y + side);
      pen.moveTo(node.x + side, node.y);
      pen.lineTo(node.x, node.y + side);
      pen.stroke();
    }
    for (let leaf = 0; leaf < count; leaf++) {
      if (leaf === this.picked || (this.search && this.textOf(leaf).toLowerCase().includes(this.search))) this.outline(pen, leaf);
    }
  }

  /** The side of a cell in pixels, without the gap between cells that are large enough for one. */
  side() {
    const cell = this.place?.cell ?? 0;
    return cell > 4 ? cell - 1 : cell;
  }

  /**
   * Fill cells; one colour after the other, because each change of the colour costs as much as some cells.
   * @param {CanvasRenderingContext2D} pen
   * @param {number[]} leaves
   */
  drawCells(pen, leaves) {
    const { flavor, place } = this;
    if (!flavor || !place) return;
    const { total, held, foreign, unbound } = flavor.leaves;
    const side = this.side();
    const lower = (/** @type {number} */ leaf, /** @type {boolean} */ waits) =>
      Boolean(unbound?.[leaf]) === waits ? between(side, total[leaf], held[leaf], false) : /** @type {[number, number]} */ ([0, 0]);
    const passes = /** @type {[string, (leaf: number) => [number, number]][]} */ ([
      ["free", () => [0, side]],
      ["held", (leaf) => lower(leaf, false)],
      ["reserved", (leaf) => lower(leaf, true)],
      ["foreign", (leaf) => between(side, total[leaf], foreign[leaf], true)],
    ]);
    for (const [name, span] of passes) {
      pen.fillStyle = colour(name);
      for (const leaf of leaves) {
        const [from, height] = span(leaf);
        if (height > 0) pen.fillRect(place.x[leaf], place.y[leaf] + from, side, height);
      }
    }
    pen.fillStyle = colour("ground");
    for (const leaf of unbound ? leaves : []) {
      const [from, height] = lower(leaf, true);
      for (let y = 2; y < height; y += 4) pen.fillRect(place.x[leaf], place.y[leaf] + from + y, side, 1);
    }
    if (leaves.includes(this.picked)) this.outline(pen, this.picked);
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {number} leaf
   */
  outline(pen, leaf) {
    const place = /** @type {import("./layout.js").Layout} */ (this.place);
    pen.strokeStyle = colour("picked");
    pen.lineWidth = 2;
    pen.strokeRect(place.x[leaf], place.y[leaf], this.side(), this.side());
  }

  /** @param {number} leaf */
  textOf(leaf) {
    const flavor = /** @type {Json} */ (this.flavor);
    const leaves = flavor.leaves;
    const holder = leaves.holder[leaf] < 0 ? null : flavor.holders[leaves.holder[leaf]];
    const amounts = ["free", "held", "foreign", "total"].map((column) => `${words(leaves[column][leaf], flavor.resource)} ${column}`).join(", ");
    const who = holder ? (holder.workload ?? "a workload that you may not read") : "";
    const how = leaves.unbound?.[leaf] ? "reserved, without a pod yet, for" : "held by";
    return `${this.pathOf(leaf).join("/")}\n${flavor.resource}: ${amounts}${who ? `\n${how} ${who}` : ""}`;
  }

  /**
   * @param {number} leaf
   * @returns {string[]} its domains, the widest one first, and itself
   */
  pathOf(leaf) {
    const flavor = /** @type {Json} */ (this.flavor);
    const names = [flavor.leaves.name[leaf]];
    let domain = flavor.leaves.domain[leaf];
    for (let level = flavor.domains.length - 1; level >= 0; level--) {
      names.unshift(flavor.domains[level].name[domain]);
      domain = flavor.domains[level].inside[domain];
    }
    return names;
  }

  /**
   * Return the leaf at a point, or -1.
   * @param {number} x
   * @param {number} y
   */
  leafAt(x, y) {
    const place = this.place;
    if (!place) return -1;
    for (let leaf = 0; leaf < place.x.length; leaf++) {
      if (x >= place.x[leaf] && x < place.x[leaf] + place.cell && y >= place.y[leaf] && y < place.y[leaf] + place.cell) return leaf;
    }
    return -1;
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const leaf = this.leafAt(event.offsetX, event.offsetY);
    const place = this.place;
    const node = place?.leftOut.find((one) => event.offsetX >= one.x && event.offsetX < one.x + place.cell && event.offsetY >= one.y && event.offsetY < one.y + place.cell);
    this.tip.hidden = leaf < 0 && !node;
    if (this.tip.hidden) return;
    this.tip.textContent = shown(leaf >= 0 ? this.textOf(leaf) : `${node?.name}\n${node?.reason}`);
    this.tip.style.left = `${Math.min(event.offsetX + 14, this.canvas.clientWidth - 180)}px`;
    this.tip.style.top = `${event.offsetY + 14}px`;
  }

  /** @param {number} leaf */
  pick(leaf) {
    this.picked = leaf;
    this.draw();
    this.tellPick();
    if (leaf >= 0 && this.flavor) this.onPick(this.flavor.leaves.name[leaf]);
  }

  /** @param {string} host */
  pickNamed(host) {
    const leaf = this.flavor?.leaves.name.indexOf(host) ?? -1;
    if (leaf >= 0 && leaf !== this.picked) this.pick(leaf);
  }

  tellPick() {
    const flavor = this.flavor;
    if (!flavor || this.picked < 0 || this.picked >= flavor.leaves.name.length) {
      this.asked = "";
      this.questions.replaceChildren();
      return void this.pickedLine.replaceChildren();
    }
    const holder = flavor.holders[flavor.leaves.holder[this.picked]];
    const key = holder?.workload;
    const [namespace, name] = key ? key.split("/") : ["", ""];
    const path = this.pathOf(this.picked);
    const domains = path.map((_, level) => path.slice(0, level + 1).join("/"));
    if (JSON.stringify(domains) !== this.asked) {
      this.asked = JSON.stringify(domains);
      const buttons = domains.map((domain) => el("button", { type: "button", onclick: () => askWhatIf(`${domain} is drained`, { drains: [domain] }) }, `What if ${domain} were drained?`));
      this.questions.replaceChildren(...buttons);
    }
    this.pickedLine.replaceChildren(shown(this.textOf(this.picked)), key ? " " : "", key ? el("a", { href: workloadLink(namespace, name) }, "why it runs there") : "");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const count = this.flavor?.leaves.name.length ?? 0;
    const step = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8, Home: -count, End: count })[event.key];
    if (step === undefined || !count) return;
    event.preventDefault();
    this.pick(Math.max(0, Math.min(count - 1, this.picked + step)));
  }
}

/**
 * Return where a share of a cell begins and how high it is, in pixels.
 * @param {number} side
 * @param {number} total
 * @param {number} share
 * @param {boolean} fromTop
 * @returns {[number, number]}
 */
export function between(side, total, share, fromTop) {
  if (total <= 0 || share <= 0) return [0, 0];
  const height = Math.max(1, Math.min(side, Math.round((side * share) / total)));
  return [fromTop ? 0 : side - height, height];
}

/** The view of one topology, with the choice of others. */
export class TopologyView {
  /**
   * @param {HTMLElement} view
   * @param {import("./main.js").Moved} moved
   */
  constructor(view, moved) {
    this.view = view;
    this.moved = moved;
    /** @type {Map<string, FlavorMap>} */
    this.maps = new Map();
    this.key = "";
  }

  /**
   * @param {Answers} answers
   * @param {Route} route
   */
  feeds(answers, route) {
    const name = nameOf(answers, route);
    return name ? ["topologies", `map/${name}`] : ["topologies"];
  }

  /**
   * @param {Answers} answers
   * @param {Route} route
   */
  draw(answers, route) {
    const { search, host } = route;
    const name = nameOf(answers, route);
    const list = answers.get("topologies");
    const map = answers.get(`map/${name}`);
    const failed = list?.error ?? map?.error;
    if (failed) {
      this.key = "";
      return void this.view.replaceChildren(notice(failed));
    }
    if (!list || !map) {
      this.key = "";
      const none = list && !list.items.length;
      return void this.view.replaceChildren(el("p", { class: "quiet" }, none ? "There is no Topology. kqueue topology detect proposes one." : "Waiting for the first answer."));
    }
    const names = list.items.map((/** @type {Json} */ item) => item.metadata.name);
    const key = JSON.stringify([name, names, map.flavors.map((/** @type {Json} */ flavor) => flavor.name)]);
    if (key !== this.key) {
      this.key = key;
      this.maps = new Map(map.flavors.map((/** @type {Json} */ flavor) => [flavor.name, new FlavorMap((host) => this.moved({ host }))]));
      const choice = el("select", { id: "topology", onchange: (/** @type {Event} */ event) => (location.hash = `#/topology/${encodeURIComponent(/** @type {HTMLSelectElement} */ (event.target).value)}`) },
        ...names.map((/** @type {string} */ one) => el("option", { value: one, selected: one === name }, one)));
      this.view.replaceChildren(
        el("div", { class: "tools" }, el("label", {}, "Topology ", choice)),
        el("ul", { class: "keys", "aria-label": "Colours" }, ...STATES.map(([state, text]) => el("li", {}, sample(state), text))),
        ...[...this.maps.values()].map((one) => one.root),
      );
    }
    const width = this.view.clientWidth - 32;
    for (const flavor of map.flavors) this.maps.get(flavor.name)?.show(flavor, search, width);
    if (host) for (const one of this.maps.values()) one.pickNamed(host);
  }
}

/**
 * Return the Topology of an address: the first one where the address names none.
 * @param {Answers} answers
 * @param {Route} route
 * @returns {string}
 */
function nameOf(answers, route) {
  return route.rest[0] || answers.get("topologies")?.items?.[0]?.metadata.name || "";
}

/** @param {string} state */
function sample(state) {
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { width: "14", height: "14", "aria-hidden": "true" }));
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.fillStyle = colour("free");
  if (state !== "broken") pen.fillRect(0, 0, 14, 14);
  pen.fillStyle = pen.strokeStyle = colour(state);
  if (state === "held") pen.fillRect(0, 5, 14, 9);
  if (state === "reserved") for (const [y, height] of [[5, 2], [8, 3], [12, 2]]) pen.fillRect(0, y, 14, height);
  if (state === "foreign") pen.fillRect(0, 0, 14, 6);
  if (state === "broken") {
    pen.moveTo(0, 0);
    pen.lineTo(14, 14);
    pen.moveTo(14, 0);
    pen.lineTo(0, 14);
    pen.stroke();
  }
  return canvas;
}
