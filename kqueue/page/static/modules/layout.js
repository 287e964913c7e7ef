// @ts-check
// Places the leaves of a topology: boxes of racks, in rows of blocks.  Pure: numbers in, numbers out.

/** @typedef {Record<string, any>} Json */
/** @typedef {{name: string, x: number, y: number}} Label */
/** @typedef {{x: number, y: number, width: number, height: number, name: string}} Box */
/** @typedef {{name: string, reason: string, x: number, y: number}} LeftOutCell */
/** @typedef {{cell: number, width: number, height: number, x: Float32Array, y: Float32Array, labels: Label[], racks: Box[], leftOut: LeftOutCell[]}} Layout */

const GAP = 6;
const LETTER = 7;
const MOST_LETTERS = 14;
const SHAPES = [2, 1, 0.5];
const CELLS = [22, 18, 15, 13, 11, 9, 8, 7, 6, 5, 4, 3];

/**
 * Return the position of each leaf, with the largest cells for which the map is not higher than `height`.  Where they would
 * be too small to read, the map may be twice as high; the smallest cells where no size fits.
 * @param {Json} flavor of a TopologyMap
 * @param {number} width of the map in pixels
 * @param {number} height that the map should not exceed
 * @returns {Layout}
 */
export function layout(flavor, width, height) {
  const groups = grouped(flavor);
  const wide = Math.max(width, 160);
  for (const [most, least] of [[height, 6], [2 * height, 4]]) {
    for (const cell of CELLS.filter((size) => size >= least)) {
      const made = flattest(flavor, groups, cell, wide);
      if (made.height <= most) return made;
    }
  }
  return flattest(flavor, groups, CELLS[CELLS.length - 1], wide);
}

/**
 * Return the map with racks of the shape that makes it the least high.
 * @param {Json} flavor
 * @param {[string, [string, number[], Json[]][]][]} groups
 * @param {number} cell
 * @param {number} width
 */
function flattest(flavor, groups, cell, width) {
  const made = SHAPES.map((shape) => placed(flavor, groups, cell, width, shape));
  return made.reduce((best, one) => (one.height < best.height ? one : best));
}

/**
 * Return the leaves and the left-out nodes of each rack, by block: [block name, [[rack name, leaves, left-out nodes]]].
 * @param {Json} flavor
 * @returns {[string, [string, number[], Json[]][]][]}
 */
export function grouped(flavor) {
  const levels = flavor.domains;
  const racks = levels.length ? levels[levels.length - 1] : { name: [""], inside: [] };
  const blocks = levels.length > 1 ? levels[levels.length - 2] : { name: [""], inside: [] };
  /** @type {[string, number[], Json[]][]} */
  const boxes = racks.name.map((/** @type {string} */ name) => [name, [], []]);
  flavor.leaves.domain.forEach((/** @type {number} */ rack, /** @type {number} */ leaf) => boxes[Math.max(0, rack)][1].push(leaf));
  /** @type {[string, [string, number[], Json[]][]][]} */
  const found = blocks.name.map((/** @type {string} */ name) => [name, []]);
  /** @type {Map<string, [string, number[], Json[]]>} */
  const byPath = new Map();
  boxes.forEach((box, number) => {
    const block = levels.length > 1 ? racks.inside[number] : 0;
    found[block][1].push(box);
    byPath.set(JSON.stringify([found[block][0], box[0]].filter(Boolean)), box);
  });
  /** @type {[string, number[], Json[]]} */
  const elsewhere = ["no rack", [], []];
  for (const node of flavor.leftOut) {
    const box = byPath.get(JSON.stringify(node.path.slice(-2).filter(Boolean)));
    (box ?? elsewhere)[2].push(node);
  }
  if (elsewhere[2].length) found.push(["not in the tree", [elsewhere]]);
  return found;
}

/**
 * Return how many cells a row of a rack has: about `shape` times as many as there are rows, with the fewest empty cells.
 * @param {number} cells
 * @param {number} shape
 */
export function columnsFor(cells, shape) {
  const least = Math.max(1, Math.ceil(Math.sqrt(cells * shape)));
  let best = least;
  for (let columns = least; columns <= least + 3; columns++) {
    if (Math.ceil(cells / columns) * columns < Math.ceil(cells / best) * best) best = columns;
  }
  return best;
}

/**
 * @param {Json} flavor
 * @param {[string, [string, number[], Json[]][]][]} groups
 * @param {number} cell
 * @param {number} width
 * @param {number} shape of racks: columns to rows
 * @returns {Layout}
 */
function placed(flavor, groups, cell, width, shape) {
  const count = flavor.leaves.name.length;
  /** @type {Layout} */
  const made = { cell, width, height: 0, x: new Float32Array(count), y: new Float32Array(count), labels: [], racks: [], leftOut: [] };
  const letters = Math.min(MOST_LETTERS, Math.max(...groups.map(([name]) => name.length), 0));
  const left = letters ? Math.min(letters * LETTER + GAP, width / 4) : 0;
  let top = 0;
  for (const [name, racks] of groups) {
    if (name) made.labels.push({ name: name.length > MOST_LETTERS ? `${name.slice(0, MOST_LETTERS - 1)}\u2026` : name, x: 0, y: top + 11 });
    let x = left;
    let y = top;
    let tallest = 0;
    for (const [rack, leaves, leftOut] of racks) {
      const inside = leaves.length + leftOut.length;
      const columns = Math.min(columnsFor(inside, shape), Math.max(1, Math.floor((width - left - 2) / cell)));
      const box = { name: rack, x, y, width: columns * cell + 2, height: Math.max(1, Math.ceil(inside / columns)) * cell + 2 };
      if (x > left && x + box.width > width) {
        x = box.x = left;
        y = box.y = y + tallest + GAP;
        tallest = 0;
      }
      made.racks.push(box);
      leaves.forEach((leaf, number) => {
        made.x[leaf] = box.x + 1 + (number % columns) * cell;
        made.y[leaf] = box.y + 1 + Math.floor(number / columns) * cell;
      });
      leftOut.forEach((node, number) => {
        const place = leaves.length + number;
        made.leftOut.push({ name: node.name, reason: node.reason, x: box.x + 1 + (place % columns) * cell, y: box.y + 1 + Math.floor(place / columns) * cell });
      });
      x += box.width + GAP;
      tallest = Math.max(tallest, box.height);
    }
    top = y + Math.max(tallest, 14) + GAP * 1.5;
  }
  made.height = top;
  return made;
}
