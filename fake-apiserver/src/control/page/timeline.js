// --- the timeline: steps with their causes and effects, in a lane for each client

const LANES_MAX = 12; // maximum number of lanes; further clients share the last lane
const BEFORE_MAX = 1000; // maximum number of steps that are searched for a cause or an effect
const NEAR_MAX = 200; // maximum number of steps between an event about the same object and the request
const EFFECTS_MAX = 200; // maximum number of displayed steps of a chain
const SHOW_MS = 100; // time in which new steps are collected before they are shown
const READS = new Set(['get', 'list', 'watch', 'GET']);
const timeline = { lanes: [], linked: new Set(), ordered: [], timer: undefined };

/** Sorts the steps by their start. The journal contains a request after the event that it causes. */
function putInOrder() {
  const steps_ = journal.all.filter((it) => !it.isGap);
  timeline.ordered = steps_.sort((one, other) => one.atMs - other.atMs || Boolean(one.isEvent) - Boolean(other.isEvent)
    || one.number - other.number);
}

const isWrite = (it) => !it.isEvent && !it.isGap && !READS.has(it.verb);
const isBeat = (it) => /^(leases|events)(\.|\/|$)/.test(it.resource ?? '');

/** Shows the filtered steps, with a lane for each client. */
function showSteps() {
  const [noReads, noWorkers, noBeats] = ['hide-reads', 'hide-workers', 'hide-beats'].map((id) => $(id).checked);
  const text = $('timeline-text').value.trim().toLowerCase();
  const workers = new Set(journal.all.filter((it) => it.worker).map((it) => it.client));
  putInOrder();
  const shown = timeline.ordered.filter((it) => it.verb !== 'BOOKMARK'
    && (!noReads || it.isEvent || isWrite(it)) && (!noWorkers || !workers.has(it.client)) && (!noBeats || !isBeat(it))
    && (it.resource || !noReads) && (!text || `${it.resource} ${placeOf(it)}`.toLowerCase().includes(text)));
  const clients = [...new Set(shown.map((it) => it.client))];
  const own = clients.length > LANES_MAX ? clients.slice(0, LANES_MAX - 1) : clients;
  const others = clients.slice(own.length);
  timeline.lanes = others.length ? [...own, null] : own;
  const names = own.map((it) => {
    const [short] = it.split(/[/ ]/);
    return make('span', { textContent: short || 'unnamed', title: it });
  });
  if (others.length) names.push(make('span', { textContent: `${others.length} others`, title: others.join('\n') }));
  $('lane-names').replaceChildren(make('span', { textContent: 'seconds' }),
    make('span', { className: 'lane-names' }, ...names), make('span', { textContent: 'step' }));
  setText($('steps-count'), `${count(shown.length)} of ${count(journal.all.length)}`);
  $('no-steps').hidden = shown.length > 0;
  setText($('no-steps'), journal.all.length ? 'The filters hide all steps.' : 'No request has arrived yet.');
  steps.show(shown);
  steps.refill();
}

/** Shows new steps. Calls within a short time are combined, because each call sorts all steps. */
function showStepsSoon() {
  timeline.timer ??= setTimeout(() => {
    timeline.timer = undefined;
    if (!$('timeline').hidden) showSteps();
  }, SHOW_MS);
}

function shape(tag, attributes) {
  const element = document.createElementNS($('drawing').namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const steps = new List($('steps'), {
  follows: true,
  row() {
    const row = make('div', { className: 'row lanes' }, make('span', { className: 'dim' }), shape('svg', {}),
      make('span', {}));
    row.setAttribute('role', 'option');
    return row;
  },
  fill(row, it) {
    const [time, drawing, text] = row.children;
    setText(time, (it.atMs / 1000).toFixed(3));
    setText(text, textOfStep(it));
    text.title = text.textContent;
    text.className = statusClass(it);
    row.className = `row lanes${timeline.linked.has(it.number) ? ' is-linked' : ''}`;
    const lanes = Math.max(1, timeline.lanes.length);
    const own = timeline.lanes.indexOf(it.client);
    const lane = own < 0 ? lanes - 1 : own;
    const middle = (at) => `${((at + 0.5) / lanes) * 100}%`;
    const lines = timeline.lanes.map((_, at) => shape('line', { x1: middle(at), x2: middle(at), y1: 0, y2: 22 }));
    const kind = it.isEvent ? 'event' : it.code === 0 || it.code >= 400 ? 'bad' : isWrite(it) ? 'write' : 'read';
    drawing.replaceChildren(...lines, shape('circle', { cx: middle(lane), cy: 11, r: 4.5, class: kind }));
  },
  open: (it) => showCauses(it),
  moved(it) {
    if (!$('cause').hidden) showCauses(it);
  },
});
steps.follows = true;

function textOfStep(it) {
  const what = it.resource ? `${it.resource} ${placeOf(it)}` : it.path;
  const revision = it.resourceVersion ? ` @${it.resourceVersion}` : '';
  const faults = it.faults?.length ? `  ⚡ ${it.faults.join('; ')}` : '';
  if (it.isEvent) return `${it.verb} ${what}${revision} to watch ${it.watch}`;
  return `${it.verb} ${what} ${it.code || 'no response'}${revision}${faults}`;
}

/** Returns the probable cause of a step: the write of an event, or the last event of the client of a request. */
function causeOf(it) {
  if (it.isEvent) return journal.writers.get(it.resourceVersion);
  const at = timeline.ordered.indexOf(it);
  const isNear = (before) => before.name && it.name?.startsWith(before.name) && before.namespace === it.namespace;
  let last;
  for (let place = at - 1; place >= Math.max(0, at - BEFORE_MAX); place -= 1) {
    const before = timeline.ordered[place];
    if (it.worker) {
      // Workers read the storage instead of watching, so their cause is a write.
      if (before.resourceVersion && isWrite(before) && isNear(before)) return before;
    } else if (before.isEvent && before.client === it.client && before.verb !== 'BOOKMARK') {
      last ??= before;
      // An event about this object, or about an object whose name is a prefix, is more probable than the last event.
      if (isNear(before)) return before;
      if (at - place > NEAR_MAX) break;
    }
  }
  return last;
}

/** Returns the probable effects of a step: the events of a write, or the writes by the client of an event. */
function effectsOf(it) {
  const at = timeline.ordered.indexOf(it);
  const after = timeline.ordered.slice(at + 1, at + BEFORE_MAX);
  if (!it.isEvent) {
    if (!it.resourceVersion || !isWrite(it)) return [];
    return after.filter((one) => (one.isEvent && one.resourceVersion === it.resourceVersion)
      || (one.worker && isWrite(one) && causeOf(one) === it));
  }
  return after.filter((one) => isWrite(one) && one.client === it.client && causeOf(one) === it);
}

/** Shows the chain of causes of a step, and its effects. */
function showCauses(it) {
  if (!it || it.isGap) return;
  if (viewOf() === 'timeline') putInOrder();
  else select('timeline');
  const before = [];
  for (let cause = causeOf(it); cause && before.length < EFFECTS_MAX && !before.includes(cause);) {
    before.unshift(cause);
    cause = causeOf(cause);
  }
  const after = [];
  const walk = (from, depth) => {
    for (const effect of effectsOf(from)) {
      if (after.length >= EFFECTS_MAX || after.some((one) => one.step === effect)) return;
      after.push({ step: effect, depth });
      walk(effect, depth + 1);
    }
  };
  walk(it, 1);
  timeline.linked = new Set([...before, it, ...after.map((one) => one.step)].map((one) => one.number));
  const line = (step_, depth, isIt) => {
    const link = button(`${(step_.atMs / 1000).toFixed(3)}  ${textOfStep(step_)}`, () => showCauses(step_), 'link');
    const item = make('li', {}, link, make('span', { className: 'dim', textContent: `  ${step_.client}` }));
    item.style.paddingLeft = `${depth * 1.2}em`;
    if (isIt) item.style.fontWeight = '600';
    return item;
  };
  const first = before.slice(-12);
  const chain = [...first.map((one, depth) => line(one, depth)), line(it, first.length, true),
    ...after.map((one) => line(one.step, first.length + one.depth))];
  const about = `${before.length ? `${count(before.length)} before` : 'nothing before'}, `
    + `${after.length ? `${count(after.length)} after` : 'nothing after'}`;
  const note = 'Writes and their events are linked by resourceVersion. A request is linked to an earlier event of its '
    + 'client: the last event about the same object, or else the last event. A write of a worker is linked to the '
    + 'last write of an object with the same name, or with a prefix of the name.';
  $('cause').replaceChildren(
    make('div', { className: 'tools' }, make('strong', { textContent: textOfStep(it), className: statusClass(it) }),
      make('span', { className: 'dim', textContent: about }), make('span', { className: 'grow' }),
      button('Bodies', () => showRequest(it.number), 'small'), button('Close', closeDetail, 'small')),
    make('div', { className: 'pane', tabIndex: 0 }, make('ul', {}, ...chain),
      make('p', { className: 'dim', textContent: note })));
  $('cause').hidden = false;
  steps.refill();
  if (steps.items.includes(it)) steps.select(it);
}

for (const id of ['hide-reads', 'hide-workers', 'hide-beats', 'timeline-text']) {
  $(id).addEventListener('input', showSteps);
}
