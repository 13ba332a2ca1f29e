// --- the cluster: its kinds, and the objects of the selected kind as `kubectl get` shows them

const cluster = {
  at: undefined, // the displayed revision; undefined for the current state
  oldest: 0, newest: 0, seen: undefined, kinds: [], resource: undefined, isChosen: false, table: undefined, sort: undefined,
  isDescending: false, fresh: new Set(), changes: new Map(), readTo: 0, isLoading: false, isStale: false,
  wanted: undefined, // uid of an object that is selected as soon as the table contains it
};

const FRESH_MS = 1500;
const WIDTH_ROWS = 400; // number of rows that determine the widths of columns
const WIDTH_MAX = 42;
/** Resources that components of the cluster write; they are listed together with the built-in resources. */
const BACKGROUND = new Set(['apiservices.apiregistration.k8s.io', 'controllerrevisions.apps', 'endpoints',
  'endpointslices.discovery.k8s.io', 'events', 'leases.coordination.k8s.io']);
const isSystem = (namespace) => /^kube-/.test(namespace);
const stateQuery = (sign) => (cluster.at === undefined ? '' : `${sign}at=${cluster.at}`);

/** Reloads the kinds and the table. Calls during a load are combined into one further load. */
async function loadCluster() {
  if (cluster.isLoading) {
    cluster.isStale = true;
    return;
  }
  cluster.isLoading = true;
  try {
    const kinds = await ask('GET', `/kinds${stateQuery('?')}`);
    Object.assign(cluster, { kinds: kinds.kinds, oldest: kinds.oldest, newest: kinds.newest, seen: kinds.newest });
    showKinds();
    await loadTable();
    showMoment();
    if (!$('pane').hidden) await refreshPane();
  } catch (error) {
    say(error.message, true);
    if (cluster.at !== undefined && cluster.at < cluster.oldest) goLive();
  } finally {
    cluster.isLoading = false;
    if (cluster.isStale) {
      cluster.isStale = false;
      loadCluster();
    }
  }
}

/** Updates the view after a write: the current state, or the range of the history. */
function followCluster(revision) {
  if (cluster.seen === revision) return;
  if (cluster.at === undefined) loadCluster();
  else if (revision < cluster.seen) goLive();
  else {
    cluster.newest = cluster.seen = revision;
    showMoment();
  }
}

function countOf(kind) {
  const namespace = $('namespace').value;
  if (!namespace || !kind.isNamespaced) return Object.values(kind.namespaces).reduce((sum, it) => sum + it, 0);
  return kind.namespaces[namespace] ?? 0;
}

/** Shows the namespaces and the kinds: custom resources first, then kinds with objects created since the start. */
function showKinds() {
  const spaces = new Set(cluster.kinds.flatMap((it) => (it.isNamespaced ? Object.keys(it.namespaces) : [])));
  const select = $('namespace');
  const wanted = select.value;
  const names = [...spaces].sort((one, other) => isSystem(one) - isSystem(other) || (one < other ? -1 : 1));
  if (wanted && !spaces.has(wanted)) names.push(wanted);
  const shown = ['', ...names].join('\n');
  if (select.shown !== shown) {
    select.shown = shown;
    const options = names.map((it) => make('option', { value: it, textContent: it }));
    select.replaceChildren(make('option', { value: '', textContent: 'all' }), ...options);
    select.value = wanted;
  }
  const used = cluster.kinds.filter((it) => countOf(it) > 0 || it.resource === cluster.resource);
  const isOwn = (it) => it.own > 0 && !BACKGROUND.has(it.resource);
  const builtIn = used.filter((it) => !it.isCustom);
  const groups = { custom: used.filter((it) => it.isCustom), own: builtIn.filter(isOwn),
    'built-in': builtIn.filter((it) => !isOwn(it)) };
  if (!cluster.isChosen) {
    const first = (groups.custom[0] ?? groups.own[0] ?? groups['built-in'][0])?.resource;
    if (first !== cluster.resource) Object.assign(cluster, { resource: first, table: undefined });
  }
  $('own-title').hidden = groups.custom.length === 0;
  for (const [group, kinds] of Object.entries(groups)) {
    keyed($(`kinds-${group}`), kinds, (it) => it.resource, (it) => {
      const element = make('li', {});
      element.number = make('span', { className: 'dim' });
      element.button = button('', () => openKind(it.resource));
      element.button.replaceChildren(make('span', { textContent: it.kind }), element.number);
      element.button.title = it.resource;
      element.append(element.button);
      return element;
    }, (element, it) => {
      setText(element.number, count(countOf(it)));
      element.button.setAttribute('aria-current', it.resource === cluster.resource);
    });
  }
}

function openKind(resource) {
  Object.assign(cluster, { resource, isChosen: true, sort: undefined, isDescending: false, fresh: new Set(), table: undefined,
    wanted: undefined });
  $('rows').scrollTop = 0;
  $('rows-filter').value = '';
  loadCluster();
}

async function loadTable() {
  const { resource } = cluster;
  if (!resource) {
    rows.show([]);
    return;
  }
  const kind = cluster.kinds.find((it) => it.resource === resource);
  const namespace = kind?.isNamespaced === false ? '' : $('namespace').value;
  const query = new URLSearchParams({ resource, ...(namespace && { namespace }) });
  const table = await ask('GET', `/table?${query}${stateQuery('&')}`);
  if (cluster.resource !== resource) return;
  const before = new Map(cluster.table?.rows.map((it) => [it.uid, it.resourceVersion]));
  if (cluster.table && cluster.at === undefined) {
    const fresh = table.rows.filter((it) => before.get(it.uid) !== it.resourceVersion).map((it) => it.uid);
    cluster.fresh = new Set(fresh);
    if (fresh.length) setTimeout(() => { cluster.fresh.clear(); rows.refill(); }, FRESH_MS);
  }
  cluster.table = table;
  setText($('table-title'), table.kind);
  showRows();
}

/** Returns the displayed columns, with the indexes of their cells. */
function columnsOf(table) {
  const columns = table.columns.map((it, place) => ({ ...it, place }))
    .filter((it) => it.priority === 0 || $('wide').checked);
  const isOfMany = table.isNamespaced && !$('namespace').value;
  return isOfMany ? [{ name: 'Namespace', place: -1 }, ...columns] : columns;
}

const cellOf = (row, column) => (column.place < 0 ? row.namespace : textOfCell(row.cells[column.place]));
const textOfCell = (cell) => (cell === null || cell === undefined ? '' : typeof cell === 'object'
  ? JSON.stringify(cell) : String(cell));

/** Filters, sorts and shows the rows of the table. */
function showRows() {
  const { table } = cluster;
  if (!table) return;
  const columns = columnsOf(table);
  const wanted = $('rows-filter').value.trim().toLowerCase();
  let shown = table.rows;
  if (wanted) {
    shown = shown.filter((row) => columns.some((column) => cellOf(row, column).toLowerCase().includes(wanted)));
  }
  const by = columns.find((it) => it.name === cluster.sort);
  if (by) {
    const sign = cluster.isDescending ? -1 : 1;
    const order = new Intl.Collator('en', { numeric: true }).compare;
    shown = [...shown].sort((one, other) => sign * order(cellOf(one, by), cellOf(other, by)));
  }
  const widths = columns.map((column) => shown.slice(0, WIDTH_ROWS)
    .reduce((most, row) => Math.max(most, cellOf(row, column).length), column.name.length + 2));
  const tracks = widths.map((it) => `minmax(6ch, ${Math.min(it + 1, WIDTH_MAX)}ch)`).join(' ');
  $('rows').tracks = $('rows-columns').style.gridTemplateColumns = `${tracks} minmax(0, 1fr)`;
  const heads = columns.map((column) => {
    const isBy = column.name === cluster.sort;
    const head = button(`${column.name.toUpperCase()}${isBy ? (cluster.isDescending ? ' ▼' : ' ▲') : ''}`, () => {
      cluster.isDescending = isBy && !cluster.isDescending;
      cluster.sort = column.name;
      showRows();
    });
    head.title = column.description ?? '';
    return head;
  });
  $('rows-columns').replaceChildren(...heads);
  rows.columns = columns;
  const selected = rows.selected?.uid;
  rows.selected = shown.find((it) => it.uid === selected);
  rows.show(shown);
  rows.refill();
  const wanted_ = shown.find((it) => it.uid === cluster.wanted);
  if (wanted_) {
    cluster.wanted = undefined;
    rows.render(); // Only the rendered list has the height to which it scrolls.
    rows.select(wanted_);
  }
  setText($('rows-count'), wanted ? `${count(shown.length)} of ${count(table.rows.length)}` : count(shown.length));
  $('no-rows').hidden = shown.length > 0;
  setText($('no-rows'), wanted ? 'No row contains this text.' : `There is no ${table.kind} in this namespace.`);
}

function cellClass(text) {
  if (/^(Running|Ready|Bound|Active|Available|Complete|Completed|Succeeded|True|Healthy)$/.test(text)) return 'ok';
  if (/^(Pending|Terminating|ContainerCreating|Unknown|Progressing|Init:.*)$/.test(text)) return 'warn';
  if (/^(.*Error.*|Failed|CrashLoopBackOff|.*BackOff|Evicted|OOMKilled|Lost|Degraded)$/.test(text)) return 'bad';
  return '';
}

const rows = new List($('rows'), {
  row() {
    const row = make('div', { className: 'row' });
    row.setAttribute('role', 'option');
    return row;
  },
  fill(row, item) {
    const columns = rows.columns ?? [];
    while (row.children.length < columns.length) row.append(make('span', {}));
    while (row.children.length > columns.length) row.lastChild.remove();
    row.style.gridTemplateColumns = $('rows').tracks;
    columns.forEach((column, place) => {
      const cell = row.children[place];
      const text = cellOf(item, column);
      setText(cell, text);
      cell.title = text;
      cell.className = cellClass(text);
    });
    row.className = `row${cluster.fresh.has(item.uid) ? ' is-fresh' : ''}`;
  },
  open: (row) => openPane(row.uid),
  moved(row) {
    if (!$('pane').hidden) openPane(row.uid);
  },
});

// --- the displayed state

/** Loads the writes since the last call, and removes the writes that are no longer in the history. */
async function loadChanges() {
  const answer = await ask('GET', `/changes?since=${cluster.readTo}`);
  for (const it of answer.changes) cluster.changes.set(it.revision, it);
  for (const revision of cluster.changes.keys()) {
    if (revision > answer.oldest) break;
    cluster.changes.delete(revision);
  }
  cluster.readTo = answer.resourceVersion;
}

function showMoment() {
  const { at, oldest, newest } = cluster;
  const slider = $('at');
  [slider.min, slider.max] = [oldest, newest];
  slider.value = at ?? newest;
  $('live').setAttribute('aria-pressed', at === undefined);
  $('later').disabled = at === undefined;
  $('earlier').disabled = (at ?? newest) <= oldest;
  $('new-object').disabled = at !== undefined;
  slider.setAttribute('aria-valuetext', at === undefined ? 'now' : `resourceVersion ${at}`);
  if (at === undefined) {
    setText($('moment-text'), `now, @${newest}; the history begins at @${oldest}`);
    return;
  }
  const change = cluster.changes.get(at);
  const writer = journal.writers.get(at);
  const by = writer ? ` by ${writer.client}, ${(writer.atMs / 1000).toFixed(3)} s` : '';
  setText($('moment-text'), change ? `@${at} ${change.type} ${change.kind} ${placeOf(change)}${by}` : `@${at}`);
}

let moving = 0;

/** Shows the state after the write with this revision. */
async function goTo(revision) {
  cluster.at = Math.max(cluster.oldest, Math.min(revision, cluster.newest));
  $('at').value = cluster.at;
  moving += 1;
  const mine = moving;
  // While the slider moves, no state is loaded.
  await new Promise((resolve) => setTimeout(resolve, 60));
  if (mine !== moving) return;
  if (cluster.readTo < cluster.newest) await loadChanges().catch((error) => say(error.message, true));
  if (mine !== moving || cluster.at === undefined) return;
  await loadCluster();
}

const step = (by) => goTo((cluster.at ?? cluster.newest) + by);

function goLive() {
  moving += 1;
  cluster.at = undefined;
  cluster.seen = undefined;
  loadCluster();
}

$('at').addEventListener('input', () => goTo(Number($('at').value)));
$('earlier').onclick = () => step(-1);
$('later').onclick = () => step(1);
$('live').onclick = goLive;
$('namespace').addEventListener('change', loadCluster);
$('rows-filter').addEventListener('input', showRows);
$('wide').addEventListener('input', showRows);

// --- new objects

function openApply(text) {
  $('apply-text').value = text;
  setText($('apply-why'), '');
  $('apply-dialog').showModal();
}

$('new-object').onclick = () => openApply('');
$('apply-close').onclick = () => $('apply-dialog').close();
$('apply-go').onclick = async () => {
  try {
    const applied = await applyAll($('apply-text').value);
    $('apply-dialog').close();
    say(`Applied: ${applied.map((it) => `${it.kind} ${placeOf(it.metadata)}`).join(', ')}.`);
    poll();
  } catch (error) {
    setText($('apply-why'), error.message);
  }
};
