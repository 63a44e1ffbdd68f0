// The tables of features: search, order and pages. Without this script they show both ends of the order.
"use strict";
for (const explorer of document.querySelectorAll(".explorer")) {
  const PAGE = 200;
  const { names, columns, main } = JSON.parse(explorer.querySelector("script").textContent);
  const [search, show] = explorer.querySelectorAll("input, select");
  const [previous, next] = explorer.querySelectorAll("button");
  const status = explorer.querySelector("[role=status]");
  const table = explorer.querySelector("table");
  const heads = [...table.querySelectorAll("thead th")];
  const first = [...table.tBodies]; // as written without a script
  const lower = names.map((name) => name.toLowerCase());
  const everything = names.map((_, row) => row);
  const collator = new Intl.Collator(undefined, { numeric: true });
  let column = main + 1, descending = true, page = 0;

  const value = (row) => (column === 0 ? names[row] : columns[column - 1].values[row]);

  const text = (cell, digits) =>
    cell === null ? "–" : typeof cell === "string" ? cell : cell.toFixed(digits).replace("-", "−");

  function compare(a, b) {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return (x === null) - (y === null) || a - b; // no value: last in both directions
    const order = typeof x === "string" ? collator.compare(x, y) : x - y;
    return (descending ? -order : order) || a - b;
  }

  function add(line, tag, content) {
    const cell = document.createElement(tag);
    if (tag === "th") cell.scope = "row";
    if (tag === "th" && content.length > 18) cell.className = "long";
    cell.textContent = content;
    line.append(cell);
  }

  function update() {
    const query = search.value.trim().toLowerCase();
    const ends = show.value === "ends" && !query;
    heads.forEach((head, k) => {
      if (k === column && !ends) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    if (ends) {
      table.replaceChildren(table.caption, table.tHead, ...first);
      previous.hidden = next.hidden = true;
      status.textContent = `${table.querySelectorAll("tbody td:nth-child(2)").length} of ${names.length} features`;
      return;
    }
    const rows = query ? everything.filter((row) => lower[row].includes(query)) : everything.slice();
    rows.sort(compare);
    page = Math.max(0, Math.min(page, Math.ceil(rows.length / PAGE) - 1));
    const body = document.createElement("tbody");
    const start = page * PAGE, shown = rows.slice(start, start + PAGE);
    for (const row of shown) {
      const line = body.insertRow();
      add(line, "th", names[row]);
      for (const { values, digits } of columns) add(line, "td", text(values[row], digits));
    }
    table.replaceChildren(table.caption, table.tHead, body);
    previous.hidden = next.hidden = rows.length <= PAGE;
    previous.disabled = page === 0;
    next.disabled = start + PAGE >= rows.length;
    const range = rows.length ? `${start + 1}–${start + shown.length} of ` : "";
    status.textContent = `${range}${rows.length} features${query ? " found" : ""}`;
  }

  heads.forEach((head, k) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      descending = column === k ? !descending : k > 0;
      column = k;
      page = 0;
      if (show.value === "ends") show.value = "all";
      update();
    });
  });
  search.addEventListener("input", () => { page = 0; update(); });
  show.addEventListener("change", () => { column = main + 1; descending = true; page = 0; search.value = ""; update(); });
  previous.addEventListener("click", () => { page -= 1; update(); });
  next.addEventListener("click", () => { page += 1; update(); });
  for (const controls of explorer.querySelectorAll(".controls")) controls.hidden = false;
  update();
}
