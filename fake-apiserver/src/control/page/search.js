// --- the search for objects of all kinds

const search = { isLoading: false, isStale: false };

function openSearch() {
  $('search-dialog').showModal();
  $('search-text').select();
  loadFound();
}

/** Loads the found objects. Calls during a load are combined into one further load. */
async function loadFound() {
  search.isStale = true;
  if (search.isLoading) return;
  search.isLoading = true;
  try {
    while (search.isStale) {
      search.isStale = false;
      const text = $('search-text').value.trim();
      const path = `/search?text=${encodeURIComponent(text)}${stateQuery('&')}`;
      const loaded = text ? ask('GET', path) : { total: 0, objects: [] };
      try {
        showFound(await loaded, text && 'No objects found.');
      } catch (error) {
        showFound({ total: 0, objects: [] }, error.message);
      }
    }
  } finally {
    search.isLoading = false;
  }
}

function showFound({ total, objects }, none) {
  const selected = found.selected?.uid;
  found.selected = objects.find((it) => it.uid === selected) ?? objects[0];
  $('found').scrollTop = 0;
  found.show(objects);
  found.refill();
  const first = total > objects.length ? `the first ${count(objects.length)} of ` : '';
  setText($('found-count'), total ? `${first}${count(total)}` : '');
  $('no-found').hidden = objects.length > 0;
  setText($('no-found'), none);
}

/** Shows an object in the table of its kind, and opens it. */
function openFound(it) {
  $('search-dialog').close();
  const { value } = $('namespace');
  if (value && it.namespace && it.namespace !== value) $('namespace').value = '';
  if (viewOf() !== 'cluster') select('cluster');
  openKind(it.resource);
  cluster.wanted = it.uid;
  openPane(it.uid, 'overview');
  $('rows').focus();
}

const found = new List($('found'), {
  row() {
    const row = make('div', { className: 'row found' }, ...Array.from({ length: 4 }, () => make('span', {})));
    row.setAttribute('role', 'option');
    return row;
  },
  fill(row, { kind, namespace, name, labels }) {
    const texts = [kind, namespace, name, Object.entries(labels).map(([key, value]) => `${key}=${value}`).join(', ')];
    texts.forEach((text, cell) => {
      setText(row.children[cell], text);
      row.children[cell].title = text;
    });
  },
  open: openFound,
  drawn() {
    const active = $('found').getAttribute('aria-activedescendant');
    if (active) $('search-text').setAttribute('aria-activedescendant', active);
    else $('search-text').removeAttribute('aria-activedescendant');
  },
});

$('search-text').addEventListener('input', loadFound);
$('search-text').addEventListener('keydown', (event) => {
  if (['ArrowDown', 'ArrowUp', 'PageDown', 'PageUp', 'Enter'].includes(event.key)) found.key(event);
});
$('search').onclick = openSearch;
$('search-close').onclick = () => $('search-dialog').close();

