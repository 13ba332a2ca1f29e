// --- keyboard

const KEYS = [
  ['1', 'The cluster', () => { select('cluster'); $('rows').focus(); }],
  ['2', 'The journal', () => { select('journal'); $('entries').focus(); }],
  ['3', 'The timeline', () => { select('timeline'); $('steps').focus(); }],
  ['4', 'Two states, compared', () => { select('objects'); $('tree').focus(); }],
  ['/', 'To the search of the view', () => $(SEARCHES[viewOf()]).focus()],
  ['o', 'Search for objects of all kinds', openSearch],
  ['l', 'The present state of the cluster, which the page follows', goLive],
  ['[', 'The state before the last write', () => step(-1)],
  [']', 'The state after the next write', () => step(1)],
  ['n', 'Apply YAML', () => openApply('')],
  ['c', 'Show or hide watches, faults and snapshots', () => showControls(document.body.classList.contains('is-wide'))],
  ['p', 'Pause the journal, or go on', () => setPaused(journal.pausedAt === undefined)],
  ['g', 'To the newest entry, and stay there', () => { entries.follows = true; draw(entries); $('entries').focus(); }],
  ['w', 'To the watches', () => {
    showControls(true);
    ($('watches').querySelector('button') ?? $('hold-all')).focus();
  }],
  ['f', 'To a new fault', () => { showControls(true); $('effect').focus(); }],
  ['s', 'Take a snapshot', take],
  ['?', 'This list', () => $('help-dialog').showModal()],
];

for (const [key, what] of [...KEYS, ['↑ ↓ j k', 'The row before, the next one'],
  ['← →', 'Close or open a part of the tree'], ['Enter', 'Open the row: bodies, or the object'],
  ['Esc', 'Close the bodies; leave a field'], ['Tab', 'To the next control']]) {
  $('keys').append(make('dt', {}, make('kbd', { textContent: key })), make('dd', { textContent: what }));
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  const isField = event.target.matches('input:not([type=checkbox], [type=range]), select, textarea');
  if (event.key === 'Escape') {
    if (isField) $(DETAILS[viewOf()][0]).focus();
    else closeDetail();
    return;
  }
  if (isField) return;
  const found = KEYS.find(([key]) => key === event.key);
  if (!found) return;
  event.preventDefault();
  found[2]();
});
