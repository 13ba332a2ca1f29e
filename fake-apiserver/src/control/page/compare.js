// --- the comparison of two states

const tree = { roots: [], open: new Map(), revision: undefined, isLoading: false, total: 0 };

const idOf = (it) => [it.apiVersion, it.kind, it.namespace, it.name].join('|');

/** Returns the tree of objects: namespaces, kinds, objects, and the dependents below each object. */
function grow(objects, changes) {
  const marks = new Map();
  const fields = new Map();
  for (const it of changes?.added ?? []) marks.set(idOf(it), '+');
  for (const it of changes?.removed ?? []) marks.set(idOf(it), '−');
  for (const it of changes?.changed ?? []) {
    marks.set(idOf(it.object), '~');
    fields.set(idOf(it.object), it.fields);
  }
  const present = new Set(objects.map(idOf));
  const removed = (changes?.removed ?? []).filter((it) => !present.has(idOf(it))).map((it) => ({ ...it, owners: [] }));
  const nodes = new Map();
  for (const it of [...objects, ...removed]) {
    const id = idOf(it);
    const label = `${it.kind} ${it.name}`;
    nodes.set(it.uid, { id, it, label, mark: marks.get(id), fields: fields.get(id), children: [] });
  }
  const spaces = new Map();
  const within = (map, id, label) => {
    if (!map.has(id)) map.set(id, { id, label, kinds: new Map(), children: [] });
    return map.get(id);
  };
  for (const node of nodes.values()) {
    const owner = node.it.owners.map((it) => nodes.get(it.uid)).find((it) => it && it !== node);
    if (owner) {
      owner.children.push(node);
      node.isOwned = true;
      continue;
    }
    const space = within(spaces, `space ${node.it.namespace}`, node.it.namespace || 'cluster');
    within(space.kinds, `${space.id} ${node.it.apiVersion} ${node.it.kind}`, node.it.kind).children.push(node);
  }
  const byLabel = (one, other) => (one.label < other.label ? -1 : Number(one.label > other.label));
  for (const space of spaces.values()) space.children = [...space.kinds.values()].sort(byLabel);
  const sort = (node) => node.children.sort(byLabel).forEach(sort);
  const isLast = (it) => Number(it.label === 'cluster');
  const roots = [...spaces.values()].sort((one, other) => isLast(one) - isLast(other) || byLabel(one, other));
  roots.forEach(sort);
  return roots;
}

async function loadObjects() {
  if (tree.isLoading || $('objects').hidden) return;
  tree.isLoading = true;
  try {
    const [to, from] = [$('to').value, $('from').value];
    const state = to ? `?snapshot=${to}` : '';
    const [objects, changes, states] = await Promise.all([
      ask('GET', `/objects${state}`),
      from && ask('GET', `/diff?from=${from}${to ? `&to=${to}` : ''}`),
      ask('GET', '/snapshot'),
    ]);
    tree.revision = states.resourceVersion;
    tree.total = objects.length;
    tree.isCompared = Boolean(from);
    tree.roots = grow(objects, changes || undefined);
    flatten();
  } catch (error) {
    say(error.message, true);
  } finally {
    tree.isLoading = false;
  }
}

/** Shows the rows of the expanded part of the tree that match the search. */
function flatten() {
  const find = $('find').value.trim().toLowerCase();
  const onlyChanges = tree.isCompared && $('changed').checked;
  const rows = [];
  const old = new Map(objectRows.items.map((row) => [row.id, row]));
  const selected = objectRows.selected?.id;
  const walk = (node, depth) => {
    const at = rows.length;
    const isWanted = node.it && (!find || node.label.toLowerCase().includes(find)) && (!onlyChanges || node.mark);
    const isKind = !node.kinds && !node.it;
    const isOpen = tree.open.get(node.id) ?? (Boolean(find) || onlyChanges || !isKind || node.children.length <= MANY);
    rows.push({ node, id: node.id, depth, isOpen });
    let hits = isWanted ? 1 : 0;
    for (const child of node.children) hits += walk(child, depth + 1);
    if (hits === 0 && (node.it ? !isWanted : true)) rows.length = at;
    else if (!isOpen) rows.length = at + 1;
    if (rows[at]) rows[at].hits = hits;
    return hits;
  };
  let hits = 0;
  for (const root of tree.roots) hits += walk(root, 0);
  objectRows.selected = rows.find((row) => row.id === selected) ?? old.get(selected);
  objectRows.show(rows);
  const what = onlyChanges ? 'changed' : 'shown';
  setText($('object-count'), `${count(hits)} ${what}, ${count(tree.total)} objects`);
  $('no-objects').hidden = rows.length > 0;
  setText($('no-objects'), onlyChanges && !find ? 'Nothing has changed.' : 'No object matches.');
}

const objectRows = new List($('tree'), {
  row() {
    const row = make('div', { className: 'row tree' }, make('span', {}), make('span', { className: 'dim' }));
    row.setAttribute('role', 'treeitem');
    return row;
  },
  fill(row, { node, depth, isOpen, hits }) {
    const [label, more] = row.children;
    const sign = node.children.length ? (isOpen ? '▾' : '▸') : ' ';
    setText(label, `${sign} ${node.mark ? `${node.mark} ` : ''}${node.label}`);
    label.style.paddingLeft = `${depth * 1.4}em`;
    label.className = { '+': 'ok', '−': 'bad', '~': 'warn' }[node.mark] ?? (node.it ? '' : 'dim');
    const deleted = node.it?.isTerminating ? 'terminating  ' : '';
    setText(more, node.it ? `${deleted}${node.it.resourceVersion ? `@${node.it.resourceVersion}` : ''}` : count(hits));
    row.setAttribute('aria-level', depth + 1);
    if (node.children.length) row.setAttribute('aria-expanded', isOpen);
    else row.removeAttribute('aria-expanded');
  },
  open(row, event) {
    const isSign = event.type === 'click' && event.offsetX < (row.depth + 1) * 20;
    if (!row.node.it || isSign) fold(row, !row.isOpen);
    else openObject(row.node);
  },
  moved(row) {
    if (!$('object').hidden && row.node.it) openObject(row.node);
  },
  key(event, row, at) {
    if (event.key === 'ArrowRight' && row.node.children.length) fold(row, true);
    else if (event.key === 'ArrowLeft' && row.isOpen && row.node.children.length) fold(row, false);
    else if (event.key === 'ArrowLeft') {
      const above = objectRows.items.slice(0, at).reverse().find((it) => it.depth < row.depth);
      if (above) objectRows.select(above);
    } else return;
    event.preventDefault();
  },
});

function fold(row, isOpen) {
  tree.open.set(row.id, isOpen);
  flatten();
}

async function openObject(node) {
  const pane = $('object');
  pane.uid = node.it.uid;
  // A deleted object is shown in its last state.
  const state = node.mark === '−' ? $('from').value : $('to').value;
  let object;
  try {
    object = await ask('GET', `/objects/${encodeURIComponent(node.it.uid)}${state ? `?snapshot=${state}` : ''}`);
  } catch (error) {
    say(error.message, true);
    return;
  }
  if (pane.uid !== node.it.uid) return;
  const { kind, name, apiVersion } = node.it;
  const { managedFields: _, ...metadata } = object.metadata;
  const whole = (isManaged) => {
    const part = body('Object', JSON.stringify(isManaged ? object : { ...object, metadata }), '');
    part.className = 'whole';
    return part;
  };
  const tools = make('div', { className: 'tools' },
    make('strong', { textContent: `${node.mark ?? ''} ${kind} ${placeOf(node.it)}` }),
    make('span', { className: 'dim', textContent: apiVersion }),
    button('Managed fields', (event) => {
      const isShown = event.target.getAttribute('aria-pressed') === 'true';
      event.target.setAttribute('aria-pressed', !isShown);
      pane.querySelector('.whole').replaceWith(whole(!isShown));
    }, 'small'),
    button('In the journal', () => {
      select('journal');
      $('text').value = name;
      refilter();
    }, 'small'),
    button('Close', closeDetail, 'small'));
  const bodies = make('div', { className: 'bodies' });
  if (node.fields) {
    const pre = make('pre', { tabIndex: 0 });
    for (const line of node.fields) {
      // `path: old -> new`
      const arrow = line.indexOf(' -> ');
      const colon = line.indexOf(': ');
      const path = line.slice(0, colon);
      pre.append(make('div', { textContent: path }),
        make('div', { className: 'minus', textContent: `- ${line.slice(colon + 2, arrow)}` }),
        make('div', { className: 'plus', textContent: `+ ${line.slice(arrow + 4)}` }));
    }
    pre.setAttribute('aria-label', 'Changes');
    bodies.append(make('div', {}, make('h3', { textContent: 'Changed' }), pre));
  }
  bodies.append(whole(false));
  pane.replaceChildren(tools, bodies);
  pane.hidden = false;
}

function compare(snapshot) {
  $('from').value = snapshot;
  $('to').value = '';
  $('changed').checked = true;
  select('objects');
}
