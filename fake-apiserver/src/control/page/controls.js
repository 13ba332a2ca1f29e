// --- watches, faults and snapshots

/** Shows items in a list. The element of an item is reused while the item exists, so it keeps the focus. */
function keyed(list, items, key, create, update) {
  const known = list.known ??= new Map();
  const gone = new Set(known.keys());
  let previous = null;
  for (const item of items) {
    const id = key(item);
    gone.delete(id);
    let element = known.get(id);
    if (!element) {
      element = create(item);
      known.set(id, element);
    }
    update(element, item);
    const place = previous ? previous.nextSibling : list.firstChild;
    if (place !== element) list.insertBefore(element, place);
    previous = element;
  }
  for (const id of gone) {
    known.get(id).remove();
    known.delete(id);
  }
}

function act(watch, action) {
  const what = typeof action === 'string' ? action : Object.keys(action)[0];
  return order('POST', '/watches', { watch, do: action }, (it) => (
    it.watches ? `Watch ${watch}: ${what}.` : `Watch ${watch} has ended.`
  ));
}

function showWatches(watches) {
  setText($('watch-count'), count(watches.length));
  $('no-watches').hidden = watches.length > 0;
  $('hold-all').disabled = watches.length === 0;
  $('resume-all').disabled = watches.length === 0;
  const create = ({ id }) => {
    const element = make('li', {});
    const part = { name: make('span', { className: 'name' }), chip: make('span', { className: 'chip' }),
      about: make('div', { className: 'dim line' }, make('span', { className: 'name' })),
      held: make('div', { className: 'held' }) };
    part.hold = button('Hold', () => act(id, part.isStopped ? 'resume' : 'hold'), 'small');
    part.next = button('Let one pass', () => act(id, { release: 1 }), 'small');
    const ends = ['Cut', 'Expire', 'End'].map((word) => button(word, () => act(id, word.toLowerCase()), 'small'));
    ends[0].title = 'Break the connection';
    ends[1].title = '410 Expired: its client must list again';
    ends[2].title = 'End it normally, as a server does at its timeout';
    for (const it of [part.hold, part.next, ...ends]) it.setAttribute('aria-describedby', `watch-${id}`);
    part.name.id = `watch-${id}`;
    const buttons = make('div', { className: 'buttons' }, part.hold, part.next, ...ends);
    element.append(make('div', { className: 'line' }, part.name, part.chip), part.about, part.held, buttons);
    element.controls = part;
    return element;
  };
  keyed($('watches'), watches.slice(0, WATCHES_MAX), (it) => it.id, create, ({ controls: part }, it) => {
    const resource = it.group ? `${it.resource}.${it.group}` : it.resource;
    setText(part.name, `${it.id}  ${resource}${it.namespace ? ` in ${it.namespace}` : ''}`);
    part.isStopped = it.isHeld || it.isSilent;
    const behind = it.behind ? `, ${count(it.behind)} behind` : '';
    setText(part.chip, it.isSilent ? `silent${behind}` : it.isHeld ? `held${behind}` : behind.slice(2) || 'up to date');
    part.chip.className = part.isStopped || it.behind ? 'chip warn' : 'chip ok';
    const at = it.lastResourceVersion ? `at ${it.lastResourceVersion}` : 'nothing delivered';
    setText(part.about.firstChild, `${at} · ${count(it.delivered)} events · ${it.client}`);
    part.about.title = it.client;
    const waiting = it.held.slice(0, 3).map((one) => `${one.type} ${placeOf(one)}`);
    const more = it.held.length > 3 ? ` and ${count(it.held.length - 3)} more` : '';
    setText(part.held, waiting.length ? `waiting: ${waiting.join(', ')}${more}` : '');
    setText(part.hold, part.isStopped ? 'Resume' : 'Hold');
    part.next.disabled = !it.isHeld;
  });
}

function showFaults(faults) {
  setText($('fault-count'), count(faults.length));
  $('end-faults').disabled = faults.length === 0;
  const create = ({ id, fault }) => {
    const element = make('li', { className: 'line wrap' });
    element.hits = make('span', { className: 'chip' });
    const end = button('End', () => order('DELETE', `/faults/${id}`, undefined, () => 'The fault has ended.'), 'small');
    end.setAttribute('aria-label', `End: ${fault}`);
    element.append(make('span', { className: 'name', textContent: fault }), element.hits, end);
    return element;
  };
  keyed($('faults'), faults, (it) => it.id, create, (element, it) => {
    setText(element.hits, `hits: ${count(it.hits)}${it.isSpent ? ', used up' : ''}`);
    element.hits.className = it.isSpent ? 'chip dim' : it.hits ? 'chip warn' : 'chip';
    element.title = it.isSpent ? 'It does not affect further requests.' : '';
  });
}

for (const verb of VERBS) {
  $('verbs').append(make('label', {}, make('input', { type: 'checkbox', name: 'verb', value: verb }), verb));
}

/** Makes the next request of this kind fail with 503. */
function failNext(it) {
  const on = { verbs: [it.verb], resource: it.resource };
  if (it.namespace) on.namespace = it.namespace;
  if (it.name && it.verb !== 'create') on.name = it.name;
  if (it.client) on.client = it.client;
  const rule = { effect: { status: { code: 503 } }, on, times: 1 };
  return order('POST', '/faults', rule, (answer) => `Fault: ${answer.fault}.`);
}

/** Fills in the form for a fault that affects requests of this kind. */
function prepareFault(it) {
  showControls(true);
  for (const box of $('verbs').querySelectorAll('input')) box.checked = box.value === it.verb;
  $('fault-resource').value = it.resource;
  $('fault-namespace').value = it.namespace;
  $('fault-client').value = it.client;
  $('fault-name').value = it.verb === 'create' ? '' : it.name;
  $('effect').focus();
}

function choseEffect() {
  const { value } = $('effect').selectedOptions[0].dataset;
  $('value').disabled = value === undefined;
  $('value').value = value ?? '';
}

function ruleOf() {
  const [name, when] = $('effect').value.split(':');
  const value = Number($('value').value);
  const effects = { status: { status: { code: value } }, reset: { reset: when }, hang: { hang: when } };
  const plain = $('value').disabled ? name : { [name]: value };
  const verbs = [...$('verbs').querySelectorAll(':checked')].map((it) => it.value);
  const on = verbs.length ? { verbs } : {};
  for (const field of ['resource', 'namespace', 'name', 'client']) {
    const text = $(`fault-${field}`).value.trim();
    if (text) on[field] = text;
  }
  const rule = { effect: effects[name] ?? plain, on };
  for (const field of ['times', 'skip']) if ($(field).value) rule[field] = Number($(field).value);
  return rule;
}

let snapshots = [];

const moment = (it) => `${it.snapshot} at ${(it.atMs / 1000).toFixed(1)} s`;

function showSnapshots(answer) {
  setText($('revision'), String(answer.resourceVersion));
  $('no-snapshots').hidden = answer.snapshots.length > 0;
  const create = ({ snapshot }) => {
    const element = make('li', {});
    element.what = make('span', { className: 'name' });
    const buttons = make('div', { className: 'buttons' },
      button('Compare with now', () => compare(snapshot), 'small'),
      button('Restore', () => goBack(snapshot), 'small'));
    element.append(make('div', { className: 'line' }, element.what), buttons);
    return element;
  };
  keyed($('snapshots'), [...answer.snapshots].reverse(), (it) => it.snapshot, create, (element, it) => {
    setText(element.what, `${moment(it)}  @${it.resourceVersion}  ${count(it.objects)} objects`);
  });
  const numbers = answer.snapshots.map((it) => it.snapshot).join();
  if (numbers !== snapshots.map((it) => it.snapshot).join()) {
    snapshots = answer.snapshots;
    for (const [id, none] of [['to', 'now'], ['from', 'nothing']]) {
      const { value } = $(id);
      const textOf = (it) => ({ value: it.snapshot, textContent: `snapshot ${moment(it)}` });
      const options = snapshots.map((it) => make('option', textOf(it)));
      $(id).replaceChildren(make('option', { value: '', textContent: none }), ...options.reverse());
      $(id).value = snapshots.some((it) => String(it.snapshot) === value) ? value : '';
    }
  }
}

const take = () => order('POST', '/snapshot', undefined, (it) => `Snapshot ${it.snapshot} was taken.`);

/** Restores a state. The current state is saved before, so that it can be restored as well. */
async function goBack(snapshot) {
  const kept = await take();
  if (!kept) return;
  const said = () => `Restored snapshot ${snapshot}. The previous state is snapshot ${kept.snapshot}.`;
  await order('POST', '/restore', { snapshot }, said);
  loadObjects();
}

let isPolling = false;
let polledAt;

/** Updates the state that changes without an entry in the journal. */
async function poll() {
  if (isPolling || document.hidden || $('token-dialog').open) return;
  isPolling = true;
  try {
    const paths = ['/watches', '/faults', '/snapshot'];
    const [watches, faults, states] = await Promise.all(paths.map((path) => ask('GET', path)));
    showWatches(watches);
    showFaults(faults);
    showSnapshots(states);
    if (!$('objects').hidden && tree.revision !== states.resourceVersion && !$('to').value) loadObjects();
    if (!$('cluster').hidden) followCluster(states.resourceVersion);
  } catch (error) {
    console.info(error);
  } finally {
    isPolling = false;
  }
}

function tick() {
  const now = performance.now();
  if (polledAt !== undefined) {
    const rate = journal.requests / ((now - polledAt) / 1000);
    setText($('rate'), count(rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate)));
  }
  polledAt = now;
  journal.requests = 0;
  poll();
}
