// --- lists that only create elements for visible rows

let frame = 0;
const dirty = new Set();

/** Renders a list once in the next frame, regardless of the number of calls. */
function draw(list) {
  dirty.add(list);
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    for (const each of dirty) each.render();
    dirty.clear();
  });
}

class List {
  constructor(root, options) {
    Object.assign(this, { root, options, items: [], selected: undefined, follows: false, top: 0, pool: [] });
    this.space = make('div', {});
    root.append(this.space);
    root.addEventListener('scroll', () => {
      const rest = root.scrollHeight - root.scrollTop - root.clientHeight;
      // Many new rows may move the end away before the list has scrolled there. Only the user scrolls up.
      const isUp = root.scrollTop < this.top;
      this.top = root.scrollTop;
      this.follows = options.follows && (rest < ROW_HEIGHT || (this.follows && !isUp));
      draw(this);
    });
    root.addEventListener('click', (event) => {
      const row = event.target.closest('.row');
      if (!row) return;
      this.select(row.item);
      options.open(row.item, event);
    });
    root.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => draw(this)).observe(root);
  }

  show(items) {
    this.items = items;
    draw(this);
  }

  /** Fills all rows again, because their content does not only depend on their items. */
  refill() {
    for (const row of this.pool) row.item = undefined;
    draw(this);
  }

  /** Keeps the scroll position after the first rows were removed. */
  dropped(rows) {
    if (!this.follows) this.root.scrollTop -= rows * ROW_HEIGHT;
  }

  /** Selects an item and scrolls to it. The list no longer follows its end. */
  select(item) {
    this.selected = item;
    this.follows = false;
    const index = this.items.indexOf(item);
    if (index >= 0) {
      const { root } = this;
      const top = index * ROW_HEIGHT;
      if (top < root.scrollTop) root.scrollTop = top;
      const over = top + ROW_HEIGHT - root.clientHeight;
      if (over > root.scrollTop) root.scrollTop = over;
    }
    draw(this);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.root.clientHeight / ROW_HEIGHT) - 1);
    const last = this.items.length - 1;
    const at = this.items.indexOf(this.selected);
    const from = at < 0 ? (this.follows ? last + 1 : -1) : at;
    const steps = { ArrowDown: from + 1, ArrowUp: from - 1, j: from + 1, k: from - 1, PageDown: from + page,
      PageUp: from - page, Home: 0, End: last };
    if (event.key in steps) {
      event.preventDefault();
      if (last < 0) return;
      const item = this.items[Math.min(last, Math.max(0, steps[event.key]))];
      this.select(item);
      this.options.moved?.(item);
    } else if ((event.key === 'Enter' || event.key === ' ') && at >= 0) {
      event.preventDefault();
      this.options.open(this.selected, event);
    } else if (at >= 0) {
      this.options.key?.(event, this.selected, at);
    }
  }

  render() {
    const { root, items, pool } = this;
    const height = `${items.length * ROW_HEIGHT}px`;
    if (this.space.style.height !== height) this.space.style.height = height;
    if (this.follows) {
      root.scrollTop = items.length * ROW_HEIGHT;
      this.top = root.scrollTop;
    }
    const visible = Math.ceil(root.clientHeight / ROW_HEIGHT) + 6;
    while (pool.length < visible) {
      const row = this.options.row();
      row.id = `${root.id}-${pool.length}`;
      pool.push(row);
      root.append(row);
    }
    const first = Math.max(0, Math.floor(root.scrollTop / ROW_HEIGHT) - 3);
    let active = '';
    const used = new Set();
    for (let index = first; index < Math.min(items.length, first + visible); index += 1) {
      const row = pool[index % pool.length];
      const item = items[index];
      used.add(row);
      row.hidden = false;
      row.style.display = '';
      row.style.transform = `translateY(${index * ROW_HEIGHT}px)`;
      if (row.item !== item) {
        row.item = item;
        this.options.fill(row, item);
      }
      row.setAttribute('aria-posinset', index + 1);
      row.setAttribute('aria-setsize', items.length);
      row.setAttribute('aria-selected', item === this.selected);
      if (item === this.selected) active = row.id;
    }
    for (const row of pool) if (!used.has(row)) row.style.display = 'none';
    if (active) root.setAttribute('aria-activedescendant', active);
    else root.removeAttribute('aria-activedescendant');
    this.options.drawn?.();
  }
}
