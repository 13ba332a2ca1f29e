// --- one object: related objects, YAML, history and actions

const pane = { uid: undefined, tab: 'overview', shown: undefined, hasManagedFields: false, isTyped: false };

const PANE_TABS = { overview: 'Overview', yaml: 'YAML', history: 'History', edit: 'Edit', logs: 'Logs' };

function openPane(uid, tab = pane.tab) {
  if (pane.uid !== uid) pane.isTyped = false;
  Object.assign(pane, { uid, tab, shown: undefined });
  return refreshPane();
}

function closePane() {
  Object.assign(pane, { uid: undefined, shown: undefined, isTyped: false });
}

/** Shows the object in the displayed state of the cluster. A text that is being edited is kept. */
async function refreshPane() {
  const { uid, tab } = pane;
  if (!uid || pane.isTyped) return;
  const wanted = `${uid} ${tab} ${cluster.at ?? cluster.seen} ${pane.hasManagedFields}`;
  if (pane.shown === wanted) return;
  const isSame = pane.shown?.startsWith(`${uid} ${tab} `);
  const top = isSame ? $('pane').querySelector('.pane, pre')?.scrollTop : 0;
  let object;
  try {
    object = await ask('GET', `/objects/${encodeURIComponent(uid)}${stateQuery('?')}`);
  } catch {
    object = undefined; // The object does not exist in this state, but it may have a history.
  }
  let content;
  try {
    content = await PANES[object || tab === 'history' ? tab : 'absent'](object, uid);
  } catch (error) {
    content = make('div', { className: 'pane' }, make('p', { className: 'bad', textContent: error.message }));
  }
  if (pane.uid !== uid || pane.tab !== tab || pane.isTyped) return;
  pane.shown = wanted;
  if (object) pane.object = object;
  const focused = $('pane').contains(document.activeElement) ? document.activeElement : undefined;
  const number = focused && controlsNamed(controlName(focused)).indexOf(focused);
  $('pane').replaceChildren(paneTools(pane.object, Boolean(object)), content);
  $('pane').hidden = false;
  if (top) content.scrollTop = top;
  if (focused) {
    const same = controlsNamed(controlName(focused));
    const next = same[number] ?? same.at(-1) ?? $('pane').querySelector('[aria-pressed=true]');
    next?.focus({ preventScroll: true });
  }
}

/** Returns a text that identifies a control of the pane, to keep the focus when the pane is filled again. */
const controlName = (it) => `${it.tagName} ${it.ariaLabel ?? (it.tagName === 'BUTTON' ? it.textContent : it.className)}`;

/** Returns the controls of the pane with this name, such as the buttons of all rows. */
function controlsNamed(name) {
  const controls = [...$('pane').querySelectorAll('button, input, select, textarea, [tabindex]')];
  return controls.filter((it) => controlName(it) === name);
}

function paneTools(object, isThere) {
  const isPod = object?.kind === 'Pod' && object.apiVersion === 'v1';
  const tabs = Object.entries(PANE_TABS).filter(([tab]) => tab !== 'logs' || isPod).map(([tab, text]) => {
    const it = button(text, () => {
      pane.isTyped = false;
      openPane(pane.uid, tab);
    }, 'small');
    it.setAttribute('aria-pressed', tab === pane.tab);
    return it;
  });
  const title = object ? `${object.kind} ${placeOf(object.metadata)}` : '';
  return make('div', { className: 'tools' },
    make('strong', { textContent: title, className: isThere ? '' : 'dim' }),
    ...tabs, make('span', { className: 'grow' }),
    button('kubectl', () => copyLine(kubectlLine, object), 'small'),
    button('curl', () => copyLine(curlLine, object), 'small'),
    button('In the journal', () => {
      select('journal');
      $('text').value = object.metadata.name;
      refilter();
    }, 'small'),
    button('Fault …', () => prepareFault({ verb: 'update', resource: cluster.resource, client: '',
      namespace: object.metadata.namespace ?? '', name: object.metadata.name }), 'small'),
    button('Close', closeDetail, 'small'));
}

/** Quotes an argument for a shell if necessary. */
const quoted = (text) => (/^[\w.,:/@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

const pluralOf = (resource) => resource.split('.')[0];

/** The file in the examples of the documentation; it is the file of the server's option --kubeconfig. */
const KUBECONFIG = 'fake.kubeconfig';
const IS_TLS = location.protocol === 'https:';
const NOTES = {
  kubeconfig: `# ${KUBECONFIG} is the file of the server option --kubeconfig\n`,
  plain: '# kubectl sends no token over plain HTTP, so use the curl line, or start the server with --tls\n',
  token: '# if the server refuses anonymous requests, add -H "Authorization: Bearer TOKEN"\n',
};

/**
 * Returns a line for a shell that reads the object. Over TLS, it reads the credentials and the certificate authority,
 * which the page does not have, from the kubeconfig. Notes before the line name what the page cannot fill in. They only
 * contain characters that are harmless in shells that do not support comments in interactive input.
 */
function kubectlLine({ metadata: { namespace, name } }, token) {
  const note = IS_TLS ? NOTES.kubeconfig : token ? NOTES.plain : '';
  const user = IS_TLS ? ` --kubeconfig ${KUBECONFIG}` : '';
  const space = namespace ? ` -n ${quoted(namespace)}` : '';
  return `${note}kubectl${user} --server ${quoted(location.origin)}${space} get ${cluster.resource} ${quoted(name)} -o yaml`;
}

/** The same with curl and the token of the page. */
function curlLine({ apiVersion, metadata: { namespace, name } }, token) {
  const note = IS_TLS ? `${NOTES.kubeconfig}${token ? '' : NOTES.token}` : '';
  const authority = `kubectl config view --raw --kubeconfig ${KUBECONFIG} `
    + "-o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d";
  const trust = IS_TLS ? ` --cacert <(${authority})` : '';
  const user = token ? ` -H ${quoted(`Authorization: Bearer ${token}`)}` : '';
  const path = pathOf({ apiVersion, namespace, name }, pluralOf(cluster.resource));
  return `${note}curl${trust}${user} ${quoted(location.origin + path)}`;
}

/** Copies a line. The page shows it without the token, because a screen may be shared. */
function copyLine(lineOf, object) {
  const token = tokenOf();
  return copy(lineOf(object, token), lineOf(object, token && 'TOKEN'));
}

async function copy(text, shown = text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without a secure origin, a page has no clipboard API, but it can copy selected text.
    const field = make('textarea', { value: text, readOnly: true });
    const focused = document.activeElement;
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand('copy');
    field.remove();
    focused?.focus();
    if (!isCopied) {
      say(`The browser does not allow copying: ${shown}`, true);
      return;
    }
  }
  say(`Copied: ${shown}`);
}

/** Creates a button that opens another object. */
function linkTo(it) {
  return button(`${it.kind} ${it.name}`, () => {
    if (it.resource !== cluster.resource) openKind(it.resource);
    openPane(it.uid);
  }, 'link');
}

function tableOf(heads, lines) {
  const head = make('tr', {}, ...heads.map((it) => make('th', { textContent: it })));
  const body_ = lines.map((cells) => make('tr', {}, ...cells.map((it) => make('td', {}, it ?? ''))));
  return make('table', {}, make('thead', {}, head), make('tbody', {}, ...body_));
}

const PANES = {
  absent: () => make('div', { className: 'pane' }, make('p', { textContent: 'The object does not exist in this state.' })),

  async overview(object, uid) {
    const related = await ask('GET', `/objects/${encodeURIComponent(uid)}/related${stateQuery('?')}`);
    const { metadata } = object;
    const parts = [];
    const facts = [`created ${metadata.creationTimestamp}`, `resourceVersion ${metadata.resourceVersion}`];
    if (metadata.generation) facts.push(`generation ${metadata.generation}`);
    if (metadata.deletionTimestamp) facts.push(`terminating since ${metadata.deletionTimestamp}`);
    if (metadata.finalizers?.length) facts.push(`finalizers ${metadata.finalizers.join(', ')}`);
    parts.push(make('p', { className: 'dim', textContent: facts.join(' · ') }));
    const conditions = object.status?.conditions;
    if (Array.isArray(conditions) && conditions.length) {
      parts.push(make('h3', { textContent: 'Conditions' }), tableOf(['Type', 'Status', 'Reason', 'Message'],
        conditions.map((it) => [it.type, it.status, it.reason, it.message].map(textOfCell))));
    }
    if (related.owners.length) {
      parts.push(make('h3', { textContent: 'Owned by' }),
        make('ul', {}, ...related.owners.map((it) => make('li', {}, linkTo(it)))));
    }
    if (related.owned.length) {
      const items = related.owned.map((it) => {
        const item = make('li', {}, linkTo(it));
        item.style.paddingLeft = `${(it.depth - 1) * 1.4}em`;
        if (it.isTerminating) item.append(make('span', { className: 'warn', textContent: ' terminating' }));
        return item;
      });
      parts.push(make('h3', { textContent: `Owns ${count(items.length)}` }), make('ul', {}, ...items));
    }
    parts.push(make('h3', { textContent: 'Events' }));
    const events = related.events.reverse();
    parts.push(events.length
      ? tableOf(['Last', 'Type', 'Reason', 'From', 'Times', 'Message'],
        events.map((it) => [it.last, it.type, it.reason, it.source, it.count, it.message].map(textOfCell)))
      : make('p', { className: 'dim', textContent: 'There are no Events about this object.' }));
    return make('div', { className: 'pane', tabIndex: 0 }, ...parts);
  },

  yaml(object) {
    const text = yamlOf(pane.hasManagedFields ? object : withoutNoise(object));
    const rest = text.length - TEXT_MAX;
    const shown = rest > 0 ? `${text.slice(0, TEXT_MAX)}\n… ${count(rest)} more characters` : text;
    const pre = make('pre', { tabIndex: 0, textContent: shown });
    pre.setAttribute('aria-label', 'YAML');
    const toggle = button('managedFields', () => {
      pane.hasManagedFields = !pane.hasManagedFields;
      refreshPane();
    }, 'small');
    toggle.title = 'Also show managedFields and the annotation of kubectl apply';
    toggle.setAttribute('aria-pressed', pane.hasManagedFields);
    const tools = make('div', { className: 'tools' }, button('Copy', () => copy(text), 'small'), toggle);
    return make('div', { className: 'split' }, tools, pre);
  },

  async history(object, uid) {
    const { revisions, oldest } = await ask('GET', `/objects/${encodeURIComponent(uid)}/history`);
    if (!pane.object) pane.object = { ...revisions[0], metadata: revisions[0] };
    const items = revisions.reverse().map((it) => {
      const by = it.by ? `${it.by.verb} by ${it.by.client}, ${(it.by.atMs / 1000).toFixed(3)} s`
        : 'no request in the journal';
      const line = make('div', { className: 'line wrap' },
        make('strong', { textContent: `@${it.revision}` }),
        make('span', { className: { ADDED: 'ok', DELETED: 'bad' }[it.type] ?? 'warn', textContent: it.type }),
        make('span', { className: 'name', textContent: by }),
        button('Cluster at this time', () => goTo(it.revision), 'small'));
      if (it.by) line.append(button('Request', () => showRequest(it.by.number), 'small'));
      const item = make('li', {}, line, ...changeLines(it.changes));
      if (it.type === 'MODIFIED' && it.changes.length === 0) {
        item.append(make('div', { className: 'dim', textContent: 'only managedFields changed' }));
      }
      return item;
    });
    const note = `The history begins at @${oldest}.`;
    return make('div', { className: 'pane', tabIndex: 0 }, make('ol', {}, ...items),
      make('p', { className: 'dim', textContent: note }));
  },

  edit(object) {
    if (cluster.at !== undefined) {
      const live = button('Return to the current state', goLive);
      return make('div', { className: 'pane' }, make('p', { textContent: 'Earlier states cannot be edited.' }), live);
    }
    const plural = pluralOf(cluster.resource);
    const path = pathOf({ apiVersion: object.apiVersion, ...object.metadata }, plural);
    const text = make('textarea', { value: yamlOf(withoutNoise(object)), spellcheck: false });
    text.setAttribute('aria-label', 'Object as YAML');
    const typed = () => { pane.isTyped = true; };
    text.addEventListener('input', typed);
    const why = make('p', { className: 'bad' });
    const act_ = async (doing, said) => {
      try {
        await doing();
        pane.isTyped = false;
        pane.shown = undefined;
        say(said);
        poll();
        goLive();
      } catch (error) {
        setText(why, error.message);
      }
    };
    const title = `${object.kind} ${placeOf(object.metadata)}`;
    const save = button('Save', () => act_(() => callApi('PUT', path, text.value, 'application/yaml'), `${title} was saved.`));
    const tools = make('div', { className: 'tools bare' }, save);
    if (cluster.table?.subresources.includes('scale')) {
      const replicas = make('input', { type: 'number', min: 0, value: object.spec?.replicas ?? 1 });
      replicas.setAttribute('aria-label', 'Replicas');
      replicas.addEventListener('input', typed);
      const body_ = () => JSON.stringify({ spec: { replicas: Number(replicas.value) } });
      tools.append(replicas, button('Scale', () => act_(
        () => callApi('PATCH', `${path}/scale`, body_(), 'application/merge-patch+json'), `${title} was scaled.`)));
    }
    let isSure = false;
    const remove = button('Delete', () => {
      if (!isSure) {
        isSure = true;
        setText(remove, 'Press again to delete');
        return;
      }
      act_(() => callApi('DELETE', path), `${title} was deleted.`);
    });
    tools.append(remove, why);
    return make('div', { className: 'pane' }, make('div', { className: 'edit' }, tools, text));
  },

  async logs(object) {
    const { namespace, name } = object.metadata;
    const containers = [...(object.spec.initContainers ?? []), ...object.spec.containers].map((it) => it.name);
    const chosen = make('select', {}, ...containers.map((it) => make('option', { value: it, textContent: it })));
    chosen.setAttribute('aria-label', 'Container');
    chosen.value = object.spec.containers[0].name;
    const pre = make('pre', { tabIndex: 0 });
    const load = async () => {
      const path = pathOf({ apiVersion: 'v1', namespace, name }, 'pods');
      try {
        setText(pre, await callApi('GET', `${path}/log?container=${encodeURIComponent(chosen.value)}`) || 'Nothing yet.');
      } catch (error) {
        setText(pre, error.message);
      }
    };
    chosen.addEventListener('change', load);
    await load();
    return make('div', { className: 'split' },
      make('div', { className: 'tools' }, chosen, button('Reload', load, 'small')), pre);
  },
};

/** Creates elements for changed fields, given as `path: old -> new`, with marked values. */
function changeLines(lines) {
  return lines.map((line) => {
    const colon = line.indexOf(': ');
    const arrow = line.indexOf(' -> ', colon);
    return make('div', { className: 'change' }, `${line.slice(0, colon)}: `,
      make('del', { textContent: line.slice(colon + 2, arrow) }), ' → ',
      make('ins', { textContent: line.slice(arrow + 4) }));
  });
}

/** Shows a request in the journal. */
function showRequest(number) {
  select('journal');
  for (const id of ['verb', 'resource', 'client', 'status', 'text']) $(id).value = '';
  refilter();
  const entry = journal.all.find((it) => it.number === number);
  if (entry) openEntry(entry);
  else say('The request is no longer in the journal.', true);
}
