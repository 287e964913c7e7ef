// @ts-check
// A table of any number of rows, of which the browser has only the visible ones.  The page itself scrolls.

import "./production.js";
import { observeWindowOffset, observeWindowRect, Virtualizer, windowScroll } from "../vendor/virtual-core/index.js";
import { el, replaced } from "./dom.js";

/** @typedef {{title: string, kind?: string, width?: string}} Column */
/** @typedef {{key: string, cells: (Node | string | number | null | undefined)[], drawn: string}} Row `drawn` differs where the cells do */

const ROW = 30;
const OVERSCAN = 12;

export class VirtualTable {
  /**
   * @param {string} name of the table for people who do not see it
   * @param {Column[]} columns
   * @param {(index: number) => Row} rowAt makes a row when it becomes visible
   */
  constructor(name, columns, rowAt) {
    this.columns = columns;
    this.rowAt = rowAt;
    this.count = 0;
    /** @type {Map<string, {tr: HTMLElement, drawn: string, index: number}>} */
    this.made = new Map();
    this.caption = el("caption");
    this.above = el("tr", { "aria-hidden": "true", class: "space" }, el("td", { colspan: columns.length }));
    this.below = el("tr", { "aria-hidden": "true", class: "space" }, el("td", { colspan: columns.length }));
    this.body = el("tbody");
    this.root = el(
      "table",
      { class: "virtual", "aria-label": name },
      this.caption,
      el("colgroup", {}, ...columns.map(({ width }) => widthOf(width))),
      el("thead", {}, el("tr", { "aria-rowindex": 1 }, ...columns.map(({ title, kind }) => el("th", { scope: "col", class: kind || null }, title)))),
      this.body,
    );
    /** @type {Virtualizer<Window, HTMLElement> | null} */
    this.virtual = null;
    /** @type {() => void} */
    this.unmount = () => undefined;
  }

  /** @returns {import("../vendor/virtual-core/index.js").VirtualizerOptions<Window, HTMLElement>} */
  options() {
    return {
      count: this.count,
      getScrollElement: () => window,
      estimateSize: () => ROW,
      overscan: OVERSCAN,
      scrollToFn: windowScroll,
      observeElementRect: observeWindowRect,
      observeElementOffset: observeWindowOffset,
      initialRect: { width: innerWidth, height: innerHeight },
      initialOffset: () => scrollY,
      scrollMargin: this.root.isConnected ? this.body.getBoundingClientRect().top + scrollY : 0,
      onChange: () => {
        const start = performance.now();
        this.draw();
        performance.clearMeasures("rows"); // the browser would keep all of them
        performance.measure("rows", { start });
      },
    };
  }

  /**
   * Show so many rows; the table must be in the document.
   * @param {number} count
   * @param {string} caption
   */
  show(count, caption) {
    this.count = count;
    this.caption.textContent = caption;
    this.root.setAttribute("aria-rowcount", String(count + 1));
    if (!this.virtual) {
      this.virtual = new Virtualizer(this.options());
      this.unmount = this.virtual._didMount();
    } else this.virtual.setOptions(this.options());
    this.virtual._willUpdate();
    this.draw();
  }

  draw() {
    const virtual = this.virtual;
    if (!virtual) return;
    const items = virtual.getVirtualItems();
    const margin = virtual.options.scrollMargin;
    const first = items.length ? items[0].start - margin : 0;
    const last = items.length ? virtual.getTotalSize() - (items[items.length - 1].end - margin) : 0;
    /** @type {Map<string, {tr: HTMLElement, drawn: string, index: number}>} */
    const kept = new Map();
    /** @type {HTMLElement[]} */
    const rows = [];
    for (const item of items) {
      const row = this.rowAt(item.index);
      let made = this.made.get(row.key);
      if (!made || made.drawn !== row.drawn) {
        const cells = row.cells.map((cell, place) => el("td", { class: this.columns[place].kind || null }, cell));
        if (made) renewed(made.tr, cells);
        else made = { tr: el("tr", {}, ...cells), drawn: "", index: -1 };
        made.drawn = row.drawn;
      }
      if (made.index !== item.index) {
        made.index = item.index;
        made.tr.dataset.index = String(item.index);
        made.tr.setAttribute("aria-rowindex", String(item.index + 2));
      }
      kept.set(row.key, made);
      rows.push(made.tr);
    }
    this.made = kept;
    replaced(this.body, [...space(this.above, first), ...rows, ...space(this.below, last)]); // rows that stay keep the focus
    for (const tr of rows) virtual.measureElement(tr);
  }

  close() {
    this.unmount();
    this.virtual = null;
  }
}

/**
 * Put new cells in the places of those that differ; a link with the focus keeps it.
 * @param {HTMLElement} tr
 * @param {HTMLElement[]} cells
 */
function renewed(tr, cells) {
  cells.forEach((cell, place) => {
    const old = tr.children[place];
    if (!old.isEqualNode(cell)) old.replaceWith(cell);
  });
}

/** @param {string | undefined} width */
function widthOf(width) {
  const made = el("col");
  if (width) made.style.width = width;
  return made;
}

/**
 * Return the row that stands for rows out of sight, with their height; none where there are none.
 * @param {HTMLElement} row
 * @param {number} pixels
 */
function space(row, pixels) {
  if (pixels <= 0) return [];
  /** @type {HTMLElement} */ (row.firstChild).style.height = `${pixels}px`;
  return [row];
}
