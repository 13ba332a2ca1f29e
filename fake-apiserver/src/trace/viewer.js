// The page, which shows one failure of the document at one step. Text is inserted as text nodes, never as HTML.
(() => {
  const ROW = 22;
  const $ = (id) => document.getElementById(id);
  const trace = JSON.parse($('data').textContent);
  const options = {search: '', same: false, quiet: false, workers: false, loops: false};
  const state = {failure: 0, row: 0, tab: 'step', object: null};
  const opened = new Set();
  let view, items, places, drawn = new Map();

  // Creates an element.
  function el(tag, attributes, ...children) {
    const it = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (name === 'class') it.className = value;
      else if (name.startsWith('on')) it.addEventListener(name.slice(2), value);
      else if (value !== false && value != null) it.setAttribute(name, value === true ? '' : value);
    }
    it.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
    return it;
  }
  const fill = (it, ...children) => it.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false));
  const tone = (step) => ({refused: 'warn', failed: 'bad'}[step.tone] ?? (step.kind === 'event' ? 'event' : 'ok'));

  // Shows a failure.
  function open(index) {
    state.failure = index;
    const failure = trace.failures[index] ?? null;
    view = rowsOf(trace, failure);
    opened.clear();
    $('test').textContent = trace.title;
    $('headline').textContent = failure?.headline ?? trace.headline;
    $('oracle').hidden = !failure?.oracle;
    $('oracle').textContent = failure?.oracle ?? '';
    fill($('plan'), (failure?.plan ?? []).map((it) => el('li', {}, it)));
    $('plan').hidden = !failure?.plan.length;
    $('replay').hidden = !failure?.replay && !failure?.command;
    $('replay-text').textContent = failure?.replay ?? failure?.command ?? '';
    $('copy-replay').hidden = !failure?.replay;
    $('copy-command').hidden = !failure?.command;
    const notes = failure?.notes ?? [];
    $('notes').textContent = notes.join('\n');
    $('notes').hidden = !notes.length;
    fill($('failures'), trace.failures.map((it, at) => el('button', {
      role: 'tab', 'aria-selected': String(at === index), onclick: () => open(at), title: it.headline,
    }, `${at + 1}. ${it.oracle}`)));
    $('failures').hidden = trace.failures.length < 2;
    const hasTwo = view.reference !== null;
    fill($('columns'), hasTwo ? [el('span', {}, view.reference.name), el('span', {}, view.failing.name)]
      : el('span', {}, view.failing.name));
    $('columns').style.gridTemplateColumns = hasTwo ? '' : 'minmax(0, 1fr)';
    const differing = view.rows.some((it) => !it.same);
    $('to-difference').hidden = !hasTwo || !differing;
    $('show-same').closest('label').hidden = !hasTwo;
    const row = failure ? failure.first : view.rows.length - 1;
    state.row = Math.max(0, Math.min(row, view.rows.length - 1));
    // If all steps are quiet, they are shown nevertheless.
    if (view.rows.length && view.rows.every(isQuiet)) { options.quiet = true; $('show-quiet').checked = true; }
    if (view.rows.length && view.rows.every((it) => isWorker(it) || isQuiet(it))) {
      options.workers = true; $('show-workers').checked = true;
    }
    state.tab = view.rows.length ? 'step' : 'report';
    state.object = null;
    list(true);
  }

  // Updates the list of steps. All lines have the same height, and only visible lines are in the document.
  function list(isNew) {
    items = itemsOf(view, options, opened);
    places = new Map();
    items.forEach((it, at) => { if (it.kind === 'row') places.set(it.row.index, at); });
    if (!places.has(state.row)) {
      // The fold of the selected step is opened; repetitions are only opened if the user selects the step. If the
      // step is filtered out, the nearest step is selected.
      const fold = items.find((it) => it.kind === 'fold' && !it.isOpen && it.rows.some((row) => row.index === state.row));
      const isOpened = isNew === 'asked' || (isNew && fold?.id.startsWith('same'));
      if (fold && isOpened) { opened.add(fold.id); list(isNew); return; }
      const indexes = [...places.keys()];
      const near = indexes.reduce((best, it) => Math.abs(it - state.row) < Math.abs(best - state.row) ? it : best,
        indexes[0] ?? -1);
      state.row = near;
    }
    drawn.forEach((it) => it.remove());
    drawn = new Map();
    $('space').style.height = `${items.length * ROW}px`;
    const rows = places.size;
    $('shown').textContent = `${rows} of ${view.rows.length} steps`;
    $('slider').max = Math.max(0, rows - 1);
    chart();
    select(state.row, isNew ? 'center' : 'nearest');
  }

  function draw() {
    const box = $('list'), top = box.scrollTop, height = box.clientHeight;
    const from = Math.max(0, Math.floor(top / ROW) - 8), to = Math.min(items.length, Math.ceil((top + height) / ROW) + 8);
    for (const [at, it] of drawn) if (at < from || at >= to) { it.remove(); drawn.delete(at); }
    for (let at = from; at < to; at += 1) {
      if (!drawn.has(at)) {
        const it = line(items[at], at);
        drawn.set(at, it);
        box.append(it);
      }
      const item = items[at];
      if (item.kind === 'row') drawn.get(at).setAttribute('aria-selected', String(item.row.index === state.row));
    }
  }

  function line(item, at) {
    let it;
    if (item.kind === 'fold') {
      it = el('div', {class: 'item fold', role: 'option', 'aria-expanded': String(item.isOpen), 'aria-selected': 'false',
        onclick: () => toggle(item)}, `${item.isOpen ? '▾' : '▸'} ${item.text}`);
    } else if (item.kind === 'group') {
      it = el('div', {class: 'item group', role: 'presentation', title: title(item.group),
        onclick: () => { select(item.row.index); tab('reconcile'); }}, title(item.group));
    } else {
      const {row} = item;
      const kind = isFault(row) ? ' faulty' : row.same || !view.reference ? '' : ' differs';
      it = el('div', {class: `item${view.reference ? ' two' : ''}${kind}`, role: 'option', id: `row-${row.index}`,
        'aria-selected': 'false', onclick: () => select(row.index)},
      view.reference ? [cell(row.left, item), cell(row.right, item)] : cell(row.right, item));
    }
    it.style.top = `${at * ROW}px`;
    return it;
  }

  function cell(step, item) {
    if (!step) return el('span', {class: 'cell'});
    const more = [step.outcome, ...(step.changes ?? []).map(textOfChange)].filter((it) => it).join('  ');
    const stale = step.saw && step.saw[0] < step.saw[1] ? ` [saw ${step.saw[0]} of ${step.saw[1]}]` : '';
    return el('span', {class: 'cell', title: `${whoOf(step)}: ${step.text}${stale} ${more}`.slice(0, 600)},
      el('span', {class: 'when'}, seconds(step.at)),
      el('span', {class: 'who'}, whoOf(step)),
      el('span', {class: `${step.isWrite ? 'write' : ''} ${step.kind === 'note' ? tone(step) : step.kind === 'event' ? 'event' : ''}
        ${item.isGrouped ? 'grouped' : ''}`}, step.isFault ? '⚡ ' : '', shortText(step), stale && el('span', {class: 'warn'}, stale)),
      el('span', {class: tone(step)}, step.kind === 'note' ? '' : more && `→ ${more}`));
  }

  const title = (group) => [`${group.client} · ${group.name}`, group.reason].filter((it) => it).join(' · ');

  function toggle(item) {
    if (opened.has(item.id)) opened.delete(item.id); else opened.add(item.id);
    list(false);
  }

  // Selects a row in all parts of the page.
  function select(index, scroll = 'nearest') {
    const at = places.get(index);
    if (at === undefined) { draw(); detail(); return; }
    if (index !== state.row) state.object = state.isPinned ? state.object : null;
    state.row = index;
    const box = $('list'), top = at * ROW, height = box.clientHeight;
    if (scroll === 'center') box.scrollTop = top - height / 2;
    else if (top < box.scrollTop + ROW) box.scrollTop = Math.max(0, top - 2 * ROW);
    else if (top + 2 * ROW > box.scrollTop + height) box.scrollTop = top + 3 * ROW - height;
    box.setAttribute('aria-activedescendant', `row-${index}`);
    const row = view.rows[index], order = [...places.keys()].indexOf(index);
    $('slider').value = order;
    $('slider').setAttribute('aria-valuetext', `${seconds(stepOf(row).at)} s, ${whoOf(stepOf(row))}: ${stepOf(row).text}`);
    $('place').textContent = `${seconds(stepOf(row).at)} s · ${order + 1} / ${places.size}`;
    draw();
    mark();
    detail();
  }

  // Updates the chart: a lane for each client, a mark for each step, and bars for reconciles.
  let lanes = [];
  function chart() {
    const rows = [...places.keys()].map((it) => view.rows[it]);
    const names = new Map();
    for (const row of rows) for (const step of stepsOf(row)) {
      const known = names.get(step.client) ?? {name: step.client, isWorker: true};
      known.isWorker = known.isWorker && Boolean(step.isWorker);
      names.set(step.client, known);
    }
    const rank = (it) => it.name === 'the test' ? 0 : it.isWorker ? 2 : 1;
    lanes = [...names.values()].sort((a, b) => rank(a) - rank(b));
    const height = view.reference ? 30 : 22;
    fill($('lane-names'), lanes.map((it) => {
      const name = el('div', {title: it.name}, it.name);
      name.style.height = `${height}px`;
      return name;
    }));
    paint(rows, height);
  }

  function paint(rows, height) {
    const canvas = $('chart'), width = Math.max(120, $('lane-marks').clientWidth), ratio = window.devicePixelRatio || 1;
    const total = Math.max(height, lanes.length * height);
    canvas.style.height = `${total}px`;
    canvas.width = width * ratio;
    canvas.height = total * ratio;
    const context = canvas.getContext('2d'), style = getComputedStyle(document.documentElement);
    const probe = el('i');
    document.body.append(probe);
    const colour = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
    const colours = Object.fromEntries(['--line', '--accent', '--bad', '--event', '--warn', '--differs', '--group', '--dim',
      '--gone', '--panel'].map((it) => [it, colour(it)]));
    probe.remove();
    void style;
    context.scale(ratio, ratio);
    const step = (width - 16) / Math.max(1, rows.length), x = (at) => 8 + step * (at + .5);
    const size = Math.max(2, Math.min(9, step * .7));
    view.scale = {x, step, width, rows, total};
    const laneOf = new Map(lanes.map((it, at) => [it.name, at]));
    rows.forEach((row, at) => {
      const faulty = isFault(row);
      if (!faulty && (row.same || !view.reference)) return;
      context.fillStyle = faulty ? colours['--gone'] : colours['--differs'];
      context.fillRect(x(at) - step / 2, 0, Math.max(1, step), total);
    });
    const sides = view.reference ? ['left', 'right'] : ['right'];
    const y = (lane, side) => lane * height + (view.reference ? (side === 'left' ? 9 : 21) : 11);
    for (const side of sides) {
      const spans = new Map();
      rows.forEach((row, at) => {
        const group = row[side]?.group;
        if (group === undefined) return;
        const span = spans.get(group) ?? [at, at, laneOf.get(row[side].client)];
        span[1] = at;
        spans.set(group, span);
      });
      context.fillStyle = colours['--group'];
      for (const [from, to, lane] of spans.values()) {
        const left = x(from) - size / 2 - 2;
        context.beginPath();
        context.roundRect(left, y(lane, side) - 5.5, Math.max(size + 4, x(to) - x(from) + size + 4), 11, 4);
        context.fill();
      }
    }
    context.strokeStyle = colours['--line'];
    lanes.forEach((_, lane) => {
      context.beginPath();
      context.moveTo(0, (lane + 1) * height - .5);
      context.lineTo(width, (lane + 1) * height - .5);
      context.stroke();
    });
    rows.forEach((row, at) => {
      for (const side of sides) {
        const it = row[side];
        if (!it) continue;
        const top = y(laneOf.get(it.client), side);
        const ink = it.isFault || it.tone === 'failed' ? '--bad' : it.tone === 'refused' ? '--warn'
          : it.kind === 'event' ? '--event' : it.isWrite ? '--accent' : '--dim';
        context.fillStyle = context.strokeStyle = colours[ink];
        context.lineWidth = 1.4;
        context.beginPath();
        if (it.isWrite || it.kind === 'note') context.rect(x(at) - size / 2, top - size / 2, size, size);
        else context.arc(x(at), top, Math.max(1, it.kind === 'event' ? size / 3 : size / 2.2), 0, 7);
        if (it.isWrite || it.kind !== 'request') context.fill(); else context.stroke();
      }
    });
    canvas.setAttribute('aria-label', `${rows.length} steps of ${lanes.length} clients: ${lanes.map((it) => it.name).join(', ')}`);
    view.image = document.createElement('canvas');
    view.image.width = canvas.width;
    view.image.height = canvas.height;
    view.image.getContext('2d').drawImage(canvas, 0, 0);
    view.accent = colours['--accent'];
  }

  // Draws the line at the selected step.
  function mark() {
    const canvas = $('chart'), context = canvas.getContext('2d'), {scale} = view;
    if (!scale) return;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(view.image, 0, 0);
    const order = [...places.keys()].indexOf(state.row), ratio = window.devicePixelRatio || 1;
    if (order < 0) return;
    context.scale(ratio, ratio);
    context.strokeStyle = view.accent;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(scale.x(order), 0);
    context.lineTo(scale.x(order), scale.total);
    context.stroke();
  }

  // The tabs with details of the selected step.
  const TABS = [['step', 'Step'], ['object', 'Object'], ['reconcile', 'Reconcile'], ['log', 'Log'], ['objects', 'All objects'],
    ['report', 'Report']];

  function tab(name) {
    state.tab = name;
    detail();
    $('pane').scrollTop = 0;
  }

  function detail() {
    const row = view.rows[state.row];
    const logs = view.failing.logs.length + (view.reference?.logs.length ?? 0);
    const count = {log: logs || '', objects: Object.keys(view.failing.objects).length || ''};
    fill($('tabs'), TABS.map(([name, text], at) => el('button', {
      role: 'tab', id: `tab-${name}`, 'aria-selected': String(state.tab === name), onclick: () => tab(name),
      title: `Key ${at + 1}`,
    }, count[name] ? `${text} (${count[name]})` : text)));
    $('pane').setAttribute('aria-labelledby', `tab-${state.tab}`);
    if (!row && state.tab !== 'report') { fill($('pane'), el('p', {class: 'empty'}, 'No step is shown.')); return; }
    fill($('pane'), {step: stepTab, object: objectTab, reconcile: reconcileTab, log: logTab, objects: objectsTab,
      report: reportTab}[state.tab](row));
  }

  function sides(row, make) {
    if (!view.reference) return make(view.failing, row.right, row.lastRight, 'right');
    return el('div', {class: 'sides'}, [
      el('div', {class: 'side'}, el('h3', {}, view.reference.name), make(view.reference, row.left, row.lastLeft, 'left')),
      el('div', {class: 'side'}, el('h3', {}, view.failing.name), make(view.failing, row.right, row.lastRight, 'right')),
    ]);
  }

  function stepTab(row) {
    return sides(row, (run, step) => {
      if (!step) return el('p', {class: 'empty'}, 'This run does not contain the step.');
      const group = step.group === undefined ? null : run.groups[step.group];
      const facts = [
        ['step', el('span', {class: step.isWrite ? 'mono write' : 'mono'}, step.text)],
        ['client', whoOf(step)],
        ['time', `${seconds(step.at)} s`],
        step.outcome && ['outcome', el('span', {class: tone(step)}, step.outcome)],
        step.isFault && ['fault', el('span', {class: 'bad'}, 'an injected fault takes effect here')],
        step.revision && ['version', String(step.revision)],
        step.saw && ['view', step.saw[0] < step.saw[1]
          ? el('span', {class: 'warn'}, `the client had observed version ${step.saw[0]}, the server was at ${step.saw[1]}`)
          : `up to date, at version ${step.saw[0]}`],
        group && ['part of', el('button', {class: 'row-link', onclick: () => tab('reconcile')}, title(group))],
      ].filter((it) => it);
      return [
        el('dl', {class: 'facts'}, facts.map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)])),
        step.isWrite && [el('h3', {}, 'Changed fields'), step.changes?.length ? changesOf(step.changes)
          : el('p', {class: 'dim'}, step.tone === 'ok' ? 'no field' : 'none: the write was not executed, or its outcome is unknown')],
        step.object && el('p', {}, el('button', {onclick: () => tab('object')}, `Show ${step.object}`)),
        step.body && [el('h3', {}, 'Request'), el('pre', {tabindex: 0}, pretty(step.body))],
        step.answer && [el('h3', {}, 'Response'), el('pre', {tabindex: 0}, pretty(step.answer))],
      ];
    });
  }

  function changesOf(changes) {
    return changes.map((it) => {
      const old = 'before' in it && el('span', {class: 'minus'}, JSON.stringify(it.before));
      const now = 'after' in it && el('span', {class: 'plus'}, JSON.stringify(it.after));
      return el('div', {class: 'change'}, el('b', {}, it.path), ': ', old || el('span', {class: 'dim'}, 'absent'), ' → ',
        now || el('span', {class: 'dim'}, 'absent'));
    });
  }

  function pretty(text) {
    try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
  }

  const objectOf = (row) => state.object ?? (stepOf(row).object || null);

  function objectTab(row) {
    const name = objectOf(row);
    const names = [...new Set([...Object.keys(view.failing.objects), ...Object.keys(view.reference?.objects ?? {}),
      ...(name ? [name] : [])])].sort();
    if (!names.length) return el('p', {class: 'empty'}, 'These runs do not contain any objects.');
    const choice = el('select', {'aria-label': 'Object', onchange: (event) => {
      state.object = event.target.value; state.isPinned = true; detail();
    }}, name ? null : el('option', {value: ''}, 'choose an object'), names.map((it) => el('option', {value: it, selected: it === name}, it)));
    const bar = el('div', {class: 'bar'}, choice,
      el('button', {title: 'Previous write ([)', onclick: () => toVersion(-1)}, '‹ write'),
      el('button', {title: 'Next write (])', onclick: () => toVersion(1)}, 'write ›'),
      state.isPinned && el('button', {title: 'Show the object of each step again', onclick: () => {
        state.isPinned = false; state.object = null; detail();
      }}, 'follow steps'));
    if (!name) return [bar, el('p', {class: 'empty'}, 'This step does not concern an object.')];
    const left = view.reference && objectAt(view.reference, name, row.lastLeft);
    const right = objectAt(view.failing, name, row.lastRight);
    const linesAt = (it) => it && it.at >= 0 && it.versions[it.at].value ? linesOf(it.versions[it.at].value) : null;
    const texts = {left: linesAt(left), right: linesAt(right)};
    const body = sides(row, (run, step, last, side) => {
      const it = side === 'left' ? left : right;
      if (it.at < 0) return el('p', {class: 'empty'}, `${name} does not exist here.`);
      const version = it.versions[it.at];
      const written = version.step === undefined ? null : run.steps[version.step];
      const by = written ? `written by ${whoOf(written)} at ${seconds(written.at)} s` : 'written before the run or by a worker';
      const head = el('p', {class: 'dim'}, `version ${it.at + 1} of ${it.versions.length} (${version.revision}), ${by}`);
      if (version.isLeftOut) return [head, el('p', {class: 'empty'}, 'This version is omitted, because the object has too many.')];
      const before = it.at > 0 ? it.versions[it.at - 1].value : null;
      const isFresh = version.step !== undefined && version.step === last;
      if (!version.value) return [head, el('p', {class: 'bad'}, 'deleted'), isFresh && before && lines(linesOf(before).map((at) => ['-', at]))];
      const now = linesOf(version.value);
      const other = texts[side === 'left' ? 'right' : 'left'];
      if (isFresh) return [head, lines(diffLines(before ? linesOf(before) : [], now), other)];
      return [head, lines(now.map((at) => [' ', at]), other)];
    });
    const differs = texts.left && texts.right && texts.left.join('\n') !== texts.right.join('\n');
    return [bar, body, differs && el('p', {class: 'dim'}, 'Lines with a bar differ between the two runs at this step.')];
  }

  function lines(signed, other) {
    const known = other && new Set(other);
    return el('pre', {tabindex: 0}, signed.map(([sign, text]) => {
      const kind = {'+': 'plus', '-': 'minus'}[sign] ?? '';
      const isOther = known && sign !== '-' && !known.has(text);
      return el('span', {class: `${kind}${isOther ? ' other' : ''}`}, `${sign} ${text}`);
    }));
  }

  // Selects the previous or next write of the displayed object.
  function toVersion(by) {
    const row = view.rows[state.row], name = objectOf(row);
    if (!name) return;
    const rows = view.rows.filter((it) => stepsOf(it).some((step) => step.object === name && step.isWrite && step.revision));
    const found = by > 0 ? rows.find((it) => it.index > row.index) : rows.filter((it) => it.index < row.index).at(-1);
    if (!found) { say(by > 0 ? 'no later write' : 'no earlier write'); return; }
    const [wasPinned, object] = [state.isPinned, state.object];
    state.tab = 'object';
    go(found.index);
    [state.isPinned, state.object] = [wasPinned, object];
  }

  // Creates a link to a step of a run.
  function link(run, at, text) {
    const side = run === view.failing ? 'rightAt' : 'leftAt';
    const row = view.rows.find((it) => it[side] === at);
    return el('button', {class: `row-link${row?.index === state.row ? ' here' : ''}`, onclick: () => row && go(row.index)}, text);
  }

  function reconcileTab(row) {
    return sides(row, (run, step) => {
      if (!step || step.group === undefined) return el('p', {class: 'empty'}, 'This step does not belong to a reconcile.');
      const group = run.groups[step.group];
      const steps = run.steps.map((it, at) => [it, at]).filter(([it]) => it.group === step.group);
      const [, first] = steps[0];
      const client = step.client;
      const events = run.steps.slice(0, first).map((it, at) => [it, at])
        .filter(([it]) => it.kind === 'event' && it.client === client && !it.isQuiet);
      const trigger = events.at(-1);
      const show = (them) => them.length ? them.map(([it, at]) => link(run, at,
        `${seconds(it.at)} ${it.text} → ${it.outcome ?? ''}`)) : el('p', {class: 'dim'}, 'none');
      const logs = run.logs.filter((it) => it.group === step.group);
      return [
        el('dl', {class: 'facts'}, [
          ['reconcile', title(group)],
          ['derived from', group.isCertain ? 'the controller’s tracing span' : 'the order of events and requests'],
          ['lasted', `${seconds(steps.at(-1)[0].at - steps[0][0].at)} s from its first to its last step`],
        ].map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)])),
        el('h3', {}, 'The last event before it'), trigger ? link(run, trigger[1],
          `${seconds(trigger[0].at)} ${trigger[0].text}`) : el('p', {class: 'dim'}, 'none'),
        el('h3', {}, 'It read'), show(steps.filter(([it]) => !it.isWrite && it.kind === 'request')),
        el('h3', {}, 'It wrote'), steps.filter(([it]) => it.isWrite).length
          ? steps.filter(([it]) => it.isWrite).map(([it, at]) => [link(run, at,
            `${seconds(it.at)} ${it.text} → ${it.outcome ?? ''}`), changesOf(it.changes ?? [])])
          : el('p', {class: 'dim'}, 'nothing'),
        logs.length > 0 && [el('h3', {}, 'Its output'), logs.map((it) => logLine(run, it, step))],
      ];
    });
  }

  function logLine(run, log, isHere) {
    const kind = {ERROR: 'bad', WARN: 'warn', DEBUG: 'dim', TRACE: 'dim'}[log.level] ?? '';
    return el('div', {class: `log${isHere === true ? ' here' : ''}`}, el('span', {class: 'dim'}, `${seconds(log.at)} `),
      el('span', {class: kind}, `${log.level} `), el('span', {class: 'dim'}, `${log.target}: `), log.text);
  }

  function logTab(row) {
    return sides(row, (run, step, last) => {
      if (!run.logs.length) {
        return el('p', {class: 'empty'}, 'The controller wrote no tracing output, or it does not use the crate `tracing`.');
      }
      // The output around the step is marked.
      const place = run.logs.findIndex((it) => it.step > last);
      const at = place < 0 ? run.logs.length : place;
      const from = Math.max(0, at - 200), shown = run.logs.slice(from, at + 200);
      return shown.map((it, index) => {
        const isHere = it.step === last || (it.step === last + 1 && from + index === at);
        return logLine(run, it, isHere || (step?.group !== undefined && it.group === step.group));
      });
    });
  }

  function objectsTab(row) {
    const names = [...new Set([...Object.keys(view.failing.objects), ...Object.keys(view.reference?.objects ?? {})])].sort();
    if (!names.length) return el('p', {class: 'empty'}, 'These runs do not contain any objects.');
    const text = (it) => it && it.at >= 0 ? JSON.stringify(it.versions[it.at].value) : 'null';
    return names.map((name) => {
      const left = view.reference && objectAt(view.reference, name, row.lastLeft);
      const right = objectAt(view.failing, name, row.lastRight);
      const exists = (it) => it && it.at >= 0 && it.versions[it.at].value !== null;
      const words = [];
      if (!exists(right)) words.push(right.at < 0 ? 'not yet there' : 'deleted');
      if (view.reference && exists(left) !== exists(right)) words.push(exists(left) ? 'exists in the reference run' : 'missing in the reference run');
      else if (view.reference && text(left) !== text(right)) words.push('differs from the reference run');
      const count = `${right.versions.length} version${right.versions.length === 1 ? '' : 's'}`;
      return el('button', {class: 'row-link', onclick: () => { state.object = name; state.isPinned = true; tab('object'); }},
        name, el('span', {class: 'dim'}, ` ${count} `), el('span', {class: words.length ? 'warn' : ''}, words.join(', ')));
    });
  }

  function reportTab() {
    const failure = trace.failures[state.failure];
    return [
      failure && [el('h3', {}, 'Failure'), el('pre', {tabindex: 0}, failure.what)],
      failure?.plan.length > 0 && [el('h3', {}, 'Injected faults'), el('ol', {}, failure.plan.map((it) => el('li', {}, it)))],
      failure?.command && [el('h3', {}, 'To replay'), el('pre', {tabindex: 0}, failure.command)],
      trace.facts.length > 0 && [el('h3', {}, 'Run'), el('dl', {class: 'facts'},
        trace.facts.map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]))],
      trace.notes.length > 0 && [el('h3', {}, 'Notes'), el('ul', {}, trace.notes.map((it) => el('li', {}, it)))],
      [view.reference, view.failing].filter((it) => it?.leftOut).map((it) => el('p', {class: 'warn'}, `${it.name}: ${it.leftOut}`)),
    ];
  }

  // Selects a row, and opens its fold or changes the filters that hide it.
  function go(index) {
    if (!places.has(index)) {
      const fold = items.find((it) => it.kind === 'fold' && !it.isOpen && it.rows.some((row) => row.index === index));
      if (fold) opened.add(fold.id);
      else {
        // A filter hides the row.
        const row = view.rows[index];
        if (options.search) { options.search = ''; $('search').value = ''; }
        if (isQuiet(row)) { options.quiet = true; $('show-quiet').checked = true; }
        if (isWorker(row)) { options.workers = true; $('show-workers').checked = true; }
      }
      state.row = index;
      list('asked');
      return;
    }
    select(index);
  }

  function move(by) {
    const indexes = [...places.keys()], order = indexes.indexOf(state.row);
    const next = Math.max(0, Math.min(indexes.length - 1, order + by));
    if (indexes.length) select(indexes[next]);
  }

  function seek(by, test, what) {
    for (let at = state.row + by; at >= 0 && at < view.rows.length; at += by) {
      if (test(view.rows[at])) { go(at); return; }
    }
    say(by > 0 ? `no later ${what}` : `no earlier ${what}`);
  }

  // Returns `true` for the first of several consecutive rows that differ.
  const isDifference = (row) => !row.same && !isQuiet(row) && (row.index === 0 || view.rows[row.index - 1].same);
  const isShownWrite = (row) => isWrite(row) && (options.workers || !isWorker(row)) && (options.quiet || !isQuiet(row));

  let saying;
  function say(text) {
    $('said').textContent = text;
    clearTimeout(saying);
    saying = setTimeout(() => { $('said').textContent = ''; }, 4000);
  }

  async function copy(text, what) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Some browsers do not allow pages from files to use the clipboard.
      const area = el('textarea', {'aria-hidden': 'true'});
      area.value = text;
      document.body.append(area);
      area.select();
      const isDone = document.execCommand('copy');
      area.remove();
      if (!isDone) { say(`the browser does not allow it; ${what}: ${text}`); return; }
    }
    say(`copied ${what}`);
  }

  const failureNow = () => trace.failures[state.failure];
  const copyReplay = () => failureNow()?.replay && copy(failureNow().replay, 'the replay string');
  const copyCommand = () => failureNow()?.command && copy(failureNow().command, 'the command');

  const THEMES = [['', 'Auto'], ['light', 'Light'], ['dark', 'Dark']];
  let theme = 0;
  function nextTheme() {
    theme = (theme + 1) % THEMES.length;
    const [name, text] = THEMES[theme];
    if (name) document.documentElement.dataset.theme = name; else delete document.documentElement.dataset.theme;
    $('theme').textContent = text;
    chart();
    mark();
  }

  function flip(name) {
    options[name] = !options[name];
    $(`show-${name}`).checked = options[name];
    list(false);
  }

  const PAGE = 20;
  const KEYS = [
    ['↓ j / ↑ k', 'next, previous step', {ArrowDown: () => move(1), j: () => move(1), ArrowUp: () => move(-1), k: () => move(-1)}],
    ['PgDn / PgUp', '20 steps on, back', {PageDown: () => move(PAGE), PageUp: () => move(-PAGE)}],
    ['Home / End', 'first, last step', {Home: () => move(-Infinity), End: () => move(Infinity)}],
    ['d / D', 'next, previous difference of the two runs', {d: () => seek(1, isDifference, 'difference'), D: () => seek(-1, isDifference, 'difference')}],
    ['w / W', 'next, previous write', {w: () => seek(1, isShownWrite, 'write'), W: () => seek(-1, isShownWrite, 'write')}],
    ['e / E', 'next, previous failed request or fault', {
      e: () => seek(1, (row) => isFault(row) || stepsOf(row).some((it) => it.tone === 'failed'), 'failure'),
      E: () => seek(-1, (row) => isFault(row) || stepsOf(row).some((it) => it.tone === 'failed'), 'failure')}],
    ['] / [', 'next, previous write of the object shown', {']': () => toVersion(1), '[': () => toVersion(-1)}],
    ['1 … 6', 'step, object, reconcile, log, all objects, report', Object.fromEntries(TABS.map(([name], at) => [String(at + 1), () => tab(name)]))],
    ['/', 'search', {'/': () => $('search').focus()}],
    ['i b o r', 'show identical steps, bookmarks, workers, repetitions', {i: () => flip('same'), b: () => flip('quiet'), o: () => flip('workers'), r: () => flip('loops')}],
    ['c / C', 'copy the replay string, the command', {c: copyReplay, C: copyCommand}],
    ['n / N', 'next, previous failure', {n: () => state.failure + 1 < trace.failures.length && open(state.failure + 1), N: () => state.failure > 0 && open(state.failure - 1)}],
    ['t', 'colours: automatic, light, dark', {t: nextTheme}],
    ['?', 'these keys', {'?': () => $('keys').showModal()}],
  ];
  const ACTIONS = Object.assign({}, ...KEYS.map((it) => it[2]));

  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $('keys').open) return;
    const target = event.target, isText = target.matches('input[type=search], select, textarea');
    if (isText) {
      if (event.key === 'Escape') { if (target === $('search')) search(''); $('list').focus(); }
      else if (target === $('search') && (event.key === 'Enter' || event.key === 'ArrowDown')) $('list').focus();
      return;
    }
    // The slider and the pane handle these keys themselves.
    const isOwn = target === $('slider') || target.closest('#pane');
    if (isOwn && /^(Arrow|Page|Home|End)/.test(event.key)) return;
    const action = ACTIONS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });

  function search(text) {
    options.search = text;
    $('search').value = text;
    list(false);
  }

  // Initialises the page.
  fill($('key-list'), KEYS.map(([keys, what]) => [el('dt', {}, el('kbd', {}, keys)), el('dd', {}, what)]));
  fill($('facts'), trace.facts.map(([name, value]) => `${name}: ${value}`).join('  ·  '));
  $('search').addEventListener('input', (event) => search(event.target.value));
  for (const name of ['same', 'quiet', 'workers', 'loops']) $(`show-${name}`).addEventListener('change', () => flip(name));
  $('slider').addEventListener('input', (event) => {
    const index = [...places.keys()][Number(event.target.value)];
    if (index !== undefined) select(index);
  });
  $('previous').addEventListener('click', () => move(-1));
  $('next').addEventListener('click', () => move(1));
  $('to-difference').addEventListener('click', () => ACTIONS.d());
  $('to-write').addEventListener('click', () => ACTIONS.w());
  $('copy-replay').addEventListener('click', copyReplay);
  $('copy-command').addEventListener('click', copyCommand);
  $('theme').addEventListener('click', nextTheme);
  $('help').addEventListener('click', () => $('keys').showModal());
  $('list').addEventListener('scroll', draw);
  $('chart').addEventListener('click', (event) => {
    const {rows, x, step} = view.scale;
    const at = Math.round((event.offsetX - x(0)) / step);
    if (rows.length) select(rows[Math.max(0, Math.min(rows.length - 1, at))].index);
  });
  new ResizeObserver(() => { chart(); draw(); mark(); }).observe(document.body);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { chart(); mark(); });
  open(0);
  $('list').focus({preventScroll: true});
})();
