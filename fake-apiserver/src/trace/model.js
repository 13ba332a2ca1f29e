'use strict';
// The model of the viewer, independent of the page: rows, displayed items, objects at a step, differences of texts.

// Number of identical rows that are shown before and after a difference.
const AROUND = 4;
// Maximum number of rows in a repeated sequence, and the minimum number of repetitions after which they are folded.
const ROUND = 12, ROUNDS = 2;

// Returns the rows of a failure: the steps of both runs side by side, or the steps of a single run.
function rowsOf(trace, failure) {
  const failing = trace.runs[failure ? failure.failing : 0];
  const reference = failure && failure.reference != null ? trace.runs[failure.reference] : null;
  const pairs = reference ? failure.rows : failing.steps.map((_, at) => ({right: at, same: true}));
  let lastLeft = -1, lastRight = -1;
  const rows = pairs.map((pair, index) => {
    const left = pair.left ?? null, right = pair.right ?? null;
    if (left !== null) lastLeft = left;
    if (right !== null) lastRight = right;
    return {
      index, lastLeft, lastRight, same: pair.same,
      leftAt: left, rightAt: right,
      left: left === null ? null : reference.steps[left],
      right: right === null ? null : failing.steps[right],
    };
  });
  return {failing, reference, rows};
}

const stepOf = (row) => row.right ?? row.left;
const stepsOf = (row) => [row.left, row.right].filter((it) => it);
const isFault = (row) => stepsOf(row).some((it) => it.isFault || (it.kind === 'note' && it.tone === 'failed'));
const isWrite = (row) => stepsOf(row).some((it) => it.isWrite);
const isQuiet = (row) => stepsOf(row).every((it) => it.isQuiet && !it.isFault);
const isWorker = (row) => stepsOf(row).every((it) => it.isWorker && !it.isFault);

// Returns the name of the client, with the ordinal of its run after a restart.
const whoOf = (step) => step.life > 1 ? `${step.client} (${step.life})` : step.client;

// Returns the text of a step without the API group, for lists: `PATCH volumes/status shop/data`.
const shortText = (step) => step.text.replace(/^([A-Z]+ [a-z0-9-]+)\.[a-z0-9.-]+(?=[/ ]|$)/, '$1');

// Returns the group of a row, preferably the group in the failing run.
function groupOf(view, row) {
  if (row.right?.group !== undefined && row.right) return view.failing.groups[row.right.group] ?? null;
  if (row.left?.group !== undefined && row.left) return view.reference.groups[row.left.group] ?? null;
  return null;
}

function textOfChange(change) {
  const shown = (it) => { const text = JSON.stringify(it); return text.length > 160 ? text.slice(0, 160) + '…' : text; };
  if (!('before' in change)) return `+ ${change.path}: ${shown(change.after)}`;
  if (!('after' in change)) return `- ${change.path}: ${shown(change.before)}`;
  return `${change.path}: ${shown(change.before)} → ${shown(change.after)}`;
}

// Returns the text of a row for searches.
function searchText(view, row) {
  if (row.text === undefined) {
    const parts = stepsOf(row).flatMap((it) => [it.client, it.text, it.outcome, it.body, it.answer,
      ...(it.changes ?? []).map(textOfChange)]);
    const group = groupOf(view, row);
    if (group) parts.push(group.name, group.reason);
    row.text = parts.filter((it) => it).join('\n').toLowerCase();
  }
  return row.text;
}

// Returns the items of the list: rows, lines that replace folded rows, and headings of reconciles.
function itemsOf(view, options, opened) {
  const words = options.search.toLowerCase().split(/\s+/).filter((it) => it);
  const candidates = view.rows.filter((row) => {
    if (!options.quiet && isQuiet(row)) return false;
    if (!options.workers && isWorker(row) && row.same) return false;
    return words.every((word) => searchText(view, row).includes(word));
  });
  const items = [];
  let group = null;
  const push = (row) => {
    const own = groupOf(view, row);
    if (own && own !== group) items.push({kind: 'group', group: own, row});
    if (own) group = own;
    items.push({kind: 'row', row, isGrouped: own !== null});
  };
  const folded = words.length ? [] : folds(view, candidates, options);
  let next = 0;
  for (let at = 0; at < candidates.length;) {
    const fold = folded[next];
    if (!fold || at < fold.from) { push(candidates[at++]); continue; }
    next += 1;
    const rows = candidates.slice(fold.from, fold.to), id = `${fold.kind} ${rows[0].index}`;
    items.push({kind: 'fold', id, text: fold.text(rows), isOpen: opened.has(id), rows});
    if (opened.has(id)) rows.forEach(push);
    at = fold.to;
  }
  return items;
}

function folds(view, rows, options) {
  const found = [];
  if (!options.loops) {
    const keys = rows.map((row) => [row.left, row.right].map((it) => it
      ? `${whoOf(it)}\0${it.text}\0${it.outcome ?? ''}\0${it.isFault ?? ''}` : '').join('\x01'));
    for (let from = 0; from < rows.length;) {
      let taken = null;
      for (let round = 1; round <= ROUND && !taken; round += 1) {
        let length = 0;
        while (from + length + round < rows.length && keys[from + length] === keys[from + length + round]) length += 1;
        length -= length % round;
        if (length >= ROUNDS * round && length >= 4) taken = {round, length};
      }
      if (!taken) { from += 1; continue; }
      const start = from + taken.round, end = start + taken.length, times = taken.length / taken.round;
      found.push({kind: 'loop', from: start, to: end, text: (hidden) => {
        const what = taken.round === 1 ? 'the same step' : `the same ${taken.round} steps`;
        return `↻ ${what} ${times} more times, until ${seconds(stepOf(hidden.at(-1)).at)} s`;
      }});
      from = end;
    }
  }
  if (view.reference && !options.same) {
    const isTaken = new Uint8Array(rows.length), isNear = new Uint8Array(rows.length);
    for (const fold of found) isTaken.fill(1, fold.from, fold.to);
    rows.forEach((row, at) => {
      if (!row.same) isNear.fill(1, Math.max(0, at - AROUND), at + AROUND + 1);
    });
    for (let from = 0; from < rows.length;) {
      let to = from;
      while (to < rows.length && rows[to].same && !isNear[to] && !isTaken[to]) to += 1;
      if (to - from > 1) {
        found.push({kind: 'same', from, to, text: (hidden) => `⋯ ${hidden.length} identical steps`});
      }
      from = Math.max(to, from + 1);
    }
    found.sort((a, b) => a.from - b.from);
  }
  return found;
}

// Returns the versions of an object in a run, and the index of its version at a step; -1 before the first version.
function objectAt(run, name, stepAt) {
  const versions = run?.objects[name] ?? [];
  if (stepAt < 0) return {versions, at: versions.length && versions[0].step === undefined ? 0 : -1};
  const step = run.steps[stepAt];
  const state = Math.max(step?.state ?? 0, step?.isWrite ? step.revision ?? 0 : 0);
  let at = -1;
  versions.forEach((it, index) => {
    if (it.revision <= state || (it.step !== undefined && it.step <= stepAt)) at = index;
  });
  return {versions, at};
}

// Formats an object as lines similar to YAML.
function linesOf(value) {
  const lines = [];
  const plain = (it) => {
    if (typeof it !== 'string') return JSON.stringify(it);
    return /^[A-Za-z_/][\w ./@:-]*$/.test(it) && !/^(true|false|null|yes|no|on|off)$/i.test(it) && !/: |:$| $/.test(it)
      ? it : JSON.stringify(it);
  };
  const isLeaf = (it) => it === null || typeof it !== 'object' || Object.keys(it).length === 0;
  const leaf = (it) => it !== null && typeof it === 'object' ? (Array.isArray(it) ? '[]' : '{}') : plain(it);
  const write = (it, indent, first) => {
    const entries = Array.isArray(it) ? it.map((item) => [null, item]) : Object.entries(it);
    entries.forEach(([key, item], at) => {
      const lead = at === 0 && first !== null ? first : indent;
      const name = key === null ? '- ' : `${plain(key)}: `;
      if (isLeaf(item)) lines.push(lead + name + leaf(item));
      else if (key === null) write(item, `${indent}  `, `${lead}- `);
      else { lines.push(lead + name.trimEnd()); write(item, `${indent}  `, null); }
    });
  };
  if (isLeaf(value)) return [leaf(value)];
  write(value, '', null);
  return lines;
}

// Returns the difference of two texts as [sign, line], in which the sign is ' ', '+' or '-'.
function diffLines(before, after) {
  let start = 0, end = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const a = before.slice(start, before.length - end), b = after.slice(start, after.length - end);
  const result = before.slice(0, start).map((it) => [' ', it]);
  if (a.length * b.length > 4_000_000) {
    result.push(...a.map((it) => ['-', it]), ...b.map((it) => ['+', it]));
  } else {
    const width = b.length + 1, table = new Uint32Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i -= 1) {
      for (let j = b.length - 1; j >= 0; j -= 1) {
        table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1
          : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
      }
    }
    let i = 0, j = 0;
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && a[i] === b[j]) { result.push([' ', a[i]]); i += 1; j += 1; }
      else if (j < b.length && (i === a.length || table[i * width + j + 1] > table[(i + 1) * width + j])) {
        result.push(['+', b[j]]); j += 1;
      } else { result.push(['-', a[i]]); i += 1; }
    }
  }
  result.push(...before.slice(before.length - end).map((it) => [' ', it]));
  return result;
}

function seconds(at) {
  return at.toFixed(3);
}
