// --- the journal

const journal = { all: [], shown: [], next: undefined, pausedAt: undefined, requests: 0, writers: new Map() };

function entryOf(value) {
  const { request, event } = value;
  if (event) return { ...event, isEvent: true, verb: event.type };
  return { ...request, verb: request.verb ?? request.method, client: request.worker ?? request.client };
}

/** Returns the text of an entry for searches. */
function searched(it) {
  it.searched ??= [it.path, it.namespace, it.name, it.client, it.resource, it.verb, it.body, ...(it.faults ?? [])]
    .join('\n').toLowerCase();
  return it.searched;
}

function filterOf() {
  const [verb, status] = [$('verb').value, $('status').value];
  const [resource, client, text] = ['resource', 'client', 'text'].map((id) => $(id).value.trim().toLowerCase());
  const writes = new Set(['create', 'update', 'patch', 'delete', 'deletecollection']);
  const isVerb = {
    '': () => true,
    requests: (it) => !it.isEvent,
    events: (it) => it.isEvent,
    writes: (it) => writes.has(it.verb),
  }[verb] ?? ((it) => it.verb === verb);
  const isClass = ['2', '4', '5'].includes(status);
  const isStatus = {
    '': () => true,
    faults: (it) => it.faults?.length > 0,
  }[status] ?? ((it) => (isClass ? Math.floor(it.code / 100) : it.code) === Number(status));
  // As in filters of faults, `pods` also matches `pods/status`.
  const isFor = (it) => it === resource || it.startsWith(`${resource}.`) || it.startsWith(`${resource}/`);
  return (it) => it.isGap || (isVerb(it) && isStatus(it) && (!resource || isFor(it.resource))
    && (!client || it.client.toLowerCase().includes(client)) && (!text || searched(it).includes(text)));
}

let matches = filterOf();

function refilter() {
  matches = filterOf();
  const until = journal.pausedAt ?? Infinity;
  journal.shown = journal.all.filter((it) => it.number <= until && matches(it));
  entries.show(journal.shown);
}

const seen = { resources: new Set(), clients: new Set() };

function propose(list, name) {
  if (!name || seen[list].has(name) || seen[list].size >= NAMES_MAX) return;
  seen[list].add(name);
  $(list).append(make('option', { value: name }));
}

/** Adds a page of the journal. */
function takeIn(page) {
  const { all } = journal;
  if (journal.next !== undefined && page.first < journal.next) {
    // The server was restarted, so its journal is read from the beginning.
    say('The server was restarted.');
    all.length = 0;
    journal.next = undefined;
    journal.writers.clear();
    setPaused(false);
    throw new Error('another server');
  } else if (journal.next !== undefined && page.first > journal.next) {
    all.push({ number: page.first - 1, isGap: true, missing: page.first - journal.next });
  }
  journal.next = page.next;
  const isPaused = journal.pausedAt !== undefined;
  for (const value of page.entries) {
    const it = entryOf(value);
    if (!it.isEvent) journal.requests += 1;
    propose('resources', it.resource);
    propose('clients', it.client);
    all.push(it);
    if (it.resourceVersion && !it.isEvent && !journal.writers.has(it.resourceVersion)) {
      journal.writers.set(it.resourceVersion, it);
    }
    if (!isPaused && matches(it)) journal.shown.push(it);
  }
  if (all.length > ROWS_MAX * 1.1) {
    for (const it of all.splice(0, all.length - ROWS_MAX)) {
      if (journal.writers.get(it.resourceVersion) === it) journal.writers.delete(it.resourceVersion);
    }
    if (!isPaused) {
      const oldest = journal.shown.findIndex((it) => it.number >= all[0].number);
      const gone = oldest < 0 ? journal.shown.length : oldest;
      journal.shown.splice(0, gone);
      entries.dropped(gone);
    }
  }
  if (page.entries.length > 0) {
    draw(entries);
    if (!$('timeline').hidden) showStepsSoon();
  }
}

/** Reads the journal forever. After a broken connection, it continues after the last entry. */
async function follow() {
  for (;;) {
    try {
      const token = tokenOf();
      const answer = await fetch(`/_fake/journal?since=${journal.next ?? 0}`, {
        headers: headers({ Accept: 'text/event-stream' }),
      });
      if (answer.status === 401 || answer.status === 403) {
        askForToken((await answer.json()).error, token);
        const dialog = $('token-dialog');
        if (dialog.open) await new Promise((resolve) => dialog.addEventListener('close', resolve, { once: true }));
        continue;
      }
      if (!answer.ok) throw new Error(answer.statusText);
      $('state').className = 'live';
      setText($('link'), 'live');
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        text += value;
        if (!value.includes('\n')) continue;
        const events = text.split('\n\n');
        text = events.pop();
        for (const event of events) {
          const data = event.split('\n').find((line) => line.startsWith('data: '));
          if (data) takeIn(JSON.parse(data.slice(6)));
        }
      }
    } catch (error) {
      console.info(error);
    }
    $('state').className = '';
    setText($('link'), 'not connected, retrying');
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

function statusClass(it) {
  if (it.isEvent) return it.verb === 'ERROR' ? 'bad' : 'event';
  if (it.code === 0 || it.code >= 500) return 'bad';
  return it.code >= 400 ? 'warn' : 'ok';
}

const CELLS = 7;
const entries = new List($('entries'), {
  follows: true,
  row() {
    const row = make('div', { className: 'row journal' });
    row.setAttribute('role', 'option');
    for (let cell = 0; cell < CELLS; cell += 1) row.append(make('span', {}));
    return row;
  },
  fill(row, it) {
    const cells = row.children;
    const texts = Array(CELLS).fill('');
    if (it.isGap) {
      texts[4] = `${count(it.missing)} entries were dropped before they could be read`;
    } else {
      const what = it.resource ? placeOf(it) : it.path;
      const revision = it.isEvent && it.resourceVersion ? ` @${it.resourceVersion}` : '';
      const faults = it.faults?.length ? `  ⚡ ${it.faults.join('; ')}` : '';
      const took = it.isEvent ? `watch ${it.watch}` : `${(it.tookUs / 1000).toFixed(1)} ms`;
      const code = it.isEvent ? it.verb : it.code === 0 ? 'no response' : String(it.code);
      const verb = it.isEvent ? 'event' : it.verb;
      const values = [(it.atMs / 1000).toFixed(3), code, verb, it.resource, what + revision + faults, it.client, took];
      texts.splice(0, CELLS, ...values);
    }
    for (let cell = 0; cell < CELLS; cell += 1) setText(cells[cell], texts[cell]);
    cells[0].className = 'dim';
    cells[1].className = it.isGap ? '' : statusClass(it);
    cells[4].title = it.path ?? texts[4];
    cells[5].title = texts[5];
    cells[5].className = 'dim';
    cells[6].className = 'dim';
  },
  open: (it) => openEntry(it),
  moved(it) {
    if (!$('entry').hidden) openEntry(it);
  },
  drawn() {
    const { all, shown, pausedAt } = journal;
    const waiting = pausedAt === undefined ? 0 : all.filter((it) => it.number > pausedAt).length;
    const paused = pausedAt === undefined ? '' : `paused, ${count(waiting)} more · `;
    setText($('shown'), `${paused}${count(shown.length)} of ${count(all.length)}`);
    $('no-entries').hidden = shown.length > 0;
    setText($('no-entries'), all.length
      ? 'No entry matches the filters.'
      : 'No requests yet. The journal shows requests and watch events as they arrive.');
  },
});
entries.follows = true;

/** Returns a text with indentation if it is JSON, otherwise unchanged. */
function pretty(text) {
  try {
    text = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // The text is not JSON.
  }
  const rest = text.length - TEXT_MAX;
  return rest > 0 ? `${text.slice(0, TEXT_MAX)}\n… ${count(rest)} more characters` : text;
}

function body(title, text, none) {
  const pre = make('pre', { tabIndex: 0, textContent: text ? pretty(text) : none, className: text ? '' : 'dim' });
  pre.setAttribute('aria-label', title);
  return make('div', {}, make('h3', { textContent: title }), pre);
}

function button(text, onclick, className = '') {
  return make('button', { type: 'button', textContent: text, className, onclick });
}

async function openEntry(it) {
  if (!it || it.isGap) return;
  const pane = $('entry');
  pane.number = it.number;
  let read;
  try {
    read = await ask('GET', `/journal/${it.number}`);
  } catch {
    // The entry is no longer in the journal, so only the data of the list is shown.
    read = { entry: {}, user: '', answer: '' };
  }
  // Another entry may have been opened in the meantime.
  if (pane.number !== it.number) return;
  const whole = read.entry.request ?? read.entry.event;
  const gone = whole && !whole.isCut ? '' : 'It is no longer in the journal.';
  const title = it.isEvent
    ? `${it.verb} ${it.resource} ${placeOf(it)} to watch ${it.watch}`
    : `${it.method} ${it.path}  ${it.code || 'no response'}`;
  const about = [read.user && `user ${read.user}`, ...(it.faults ?? [])];
  const tools = make('div', { className: 'tools' },
    make('strong', { className: statusClass(it), textContent: title }),
    make('span', { className: 'dim', textContent: about.filter(Boolean).join(' · ') }),
    button('Only this resource', () => narrow('resource', it.resource), 'small'),
    button('Only this client', () => narrow('client', it.client), 'small'));
  if (!it.isEvent && it.resource) {
    tools.append(button('Fail the next one like this', () => failNext(it), 'small'),
      button('Fault for these …', () => prepareFault(it), 'small'));
  }
  if (!it.isGap) tools.append(button('Causes', () => showCauses(it), 'small'));
  tools.append(button('Close', closeDetail, 'small'));
  const bodies = make('div', { className: 'bodies' });
  if (!it.isEvent) bodies.append(body('Sent', whole?.body || it.body, gone || 'Nothing.'));
  bodies.append(body(it.isEvent ? 'Event' : 'Answered', read.answer, gone || 'Nothing, or a stream.'));
  pane.replaceChildren(tools, bodies);
  pane.hidden = false;
  entries.select(it);
}

function narrow(id, value) {
  $(id).value = value;
  refilter();
}

/** Closes the details of the view, and moves the focus to its list. */
function closeDetail() {
  const [list, pane] = DETAILS[viewOf()];
  $(pane).hidden = true;
  if (pane === 'entry') $('entry').number = undefined;
  if (pane === 'pane') closePane();
  $(list).focus();
}

function setPaused(isPaused) {
  journal.pausedAt = isPaused ? journal.all.at(-1)?.number ?? -1 : undefined;
  $('pause').setAttribute('aria-pressed', isPaused);
  $('pause').firstChild.data = isPaused ? 'Go on ' : 'Pause ';
  refilter();
}
