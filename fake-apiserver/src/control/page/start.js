// --- views and controls

const VIEWS = ['cluster', 'journal', 'timeline', 'objects'];
/** The list of each view, and its details. */
const DETAILS = { cluster: ['rows', 'pane'], journal: ['entries', 'entry'], timeline: ['steps', 'cause'],
  objects: ['tree', 'object'] };
const SEARCHES = { cluster: 'rows-filter', journal: 'text', timeline: 'timeline-text', objects: 'find' };

const viewOf = () => VIEWS.find((it) => !$(it).hidden);

function select(view) {
  for (const each of VIEWS) {
    $(each).hidden = each !== view;
    $(`tab-${each}`).setAttribute('aria-selected', each === view);
    $(`tab-${each}`).tabIndex = each === view ? 0 : -1;
  }
  $('flow').hidden = view !== 'journal';
  $('object-count').hidden = view !== 'objects';
  if (view === 'cluster') loadCluster();
  else if (view === 'objects') loadObjects();
  else if (view === 'timeline') showSteps();
  else draw(entries);
}

function showControls(isShown) {
  document.body.classList.toggle('is-wide', !isShown);
  $('controls').setAttribute('aria-pressed', isShown);
}

for (const id of ['verb', 'resource', 'client', 'status', 'text']) $(id).addEventListener('input', refilter);
for (const id of ['find', 'changed']) $(id).addEventListener('input', flatten);
for (const id of ['from', 'to']) $(id).addEventListener('change', loadObjects);
for (const form of document.querySelectorAll('form:not([method])')) {
  form.addEventListener('submit', (event) => event.preventDefault());
}
$('unfilter').onclick = () => {
  for (const id of ['verb', 'resource', 'client', 'status', 'text']) $(id).value = '';
  refilter();
};
$('pause').onclick = () => setPaused(journal.pausedAt === undefined);
// A link cannot send a token. If the page has a token, it downloads the trace and saves it as a file.
$('trace').onclick = async (event) => {
  const token = tokenOf();
  if (!token) return;
  event.preventDefault();
  const answer = await fetch('/_fake/trace', { headers: headers() });
  if (!answer.ok) { say(`cannot load the trace: ${answer.statusText}`, true); return; }
  const url = URL.createObjectURL(await answer.blob());
  const file = make('a', { href: url, download: 'trace.html' });
  file.click();
  URL.revokeObjectURL(url);
};
$('forget').onclick = async () => {
  if (!await order('DELETE', '/journal', undefined, () => 'The journal is empty.')) return;
  journal.all.length = 0;
  setPaused(false);
  closeDetail();
};
$('hold-all').onclick = () => order('POST', '/watches', { do: 'hold' }, (it) => `${it.watches} watches held.`);
$('resume-all').onclick = () => order('POST', '/watches', { do: 'resume' }, (it) => `${it.watches} watches resumed.`);
$('end-faults').onclick = () => order('DELETE', '/faults', undefined, (it) => `${it.ended} faults have ended.`);
$('effect').oninput = choseEffect;
$('fault').addEventListener('submit', () => order('POST', '/faults', ruleOf(), (it) => `Fault: ${it.fault}.`));
$('take').onclick = take;
$('compact').onclick = () => order('POST', '/compact', undefined, (it) => `History begins at ${it.resourceVersion}.`);
$('restart').onclick = () => order('POST', '/restart', {}, () => 'All connections have ended.');
$('help').onclick = () => $('help-dialog').showModal();
$('controls').onclick = () => showControls(document.body.classList.contains('is-wide'));
for (const view of VIEWS) $(`tab-${view}`).onclick = () => select(view);
document.querySelector('[role=tablist]').addEventListener('keydown', (event) => {
  const steps = { ArrowLeft: -1, ArrowRight: 1 };
  if (!(event.key in steps)) return;
  const view = VIEWS[(VIEWS.indexOf(viewOf()) + steps[event.key] + VIEWS.length) % VIEWS.length];
  select(view);
  $(`tab-${view}`).focus();
});
$('token-dialog').addEventListener('cancel', (event) => event.preventDefault());
$('token-form').addEventListener('submit', () => {
  sessionStorage.setItem(TOKEN, $('token').value.trim());
  $('token').value = '';
  $('token-dialog').close();
  poll();
});

/** Reads the token after `#` in the address, and removes it from the address and from the history. */
function takeTokenOfLink() {
  const [, token] = /^#token=(.+)$/.exec(location.hash) ?? [];
  if (!token) return;
  sessionStorage.setItem(TOKEN, decodeURIComponent(token));
  history.replaceState(null, '', location.pathname + location.search);
}

/** Returns the view in the address, such as `?view=journal`. */
function viewOfLink() {
  const view = new URLSearchParams(location.search).get('view');
  return VIEWS.includes(view) ? view : VIEWS[0];
}

takeTokenOfLink();
showControls(viewOfLink() !== 'cluster');
select(viewOfLink());
refilter();
setInterval(tick, POLL_MS);
tick();
follow();
