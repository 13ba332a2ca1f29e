// --- keyboard

const KEYS = [
  ['1', 'The cluster', () => { select('cluster'); $('rows').focus(); }],
  ['2', 'The journal', () => { select('journal'); $('entries').focus(); }],
  ['3', 'The timeline', () => { select('timeline'); $('steps').focus(); }],
  ['4', 'Compare two states', () => { select('objects'); $('tree').focus(); }],
  ['/', 'Focus the search of this view', () => $(SEARCHES[viewOf()]).focus()],
  ['o', 'Search for objects of all kinds', openSearch],
  ['l', 'Show the current state of the cluster, and follow it', goLive],
  ['[', 'Show the state before the last write', () => step(-1)],
  [']', 'Show the state after the next write', () => step(1)],
  ['n', 'Apply YAML', () => openApply('')],
  ['c', 'Show or hide watches, faults and snapshots', () => showControls(document.body.classList.contains('is-wide'))],
  ['p', 'Pause or resume the journal', () => setPaused(journal.pausedAt === undefined)],
  ['g', 'Follow the newest entry', () => { entries.follows = true; draw(entries); $('entries').focus(); }],
  ['w', 'Go to the watches', () => {
    showControls(true);
    ($('watches').querySelector('button') ?? $('hold-all')).focus();
  }],
  ['f', 'Go to the form for a new fault', () => { showControls(true); $('effect').focus(); }],
  ['s', 'Take a snapshot', take],
  ['?', 'Show this list', () => $('help-dialog').showModal()],
];

for (const [key, what] of [...KEYS, ['↑ ↓ j k', 'Previous or next row'],
  ['← →', 'Close or open a part of the tree'], ['Enter', 'Open the entry or the object'],
  ['Esc', 'Close the details; leave an input field'], ['Tab', 'Go to the next control']]) {
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
