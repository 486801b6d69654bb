// Shows one sample large: zoom, move, decide. It handles its own dialog and uses callbacks for everything else.

class Viewer {
  constructor(data, { go, decide, decision, closed }) {
    Object.assign(this, { data, go, decide, decision });
    this.find = id => document.getElementById(id);
    this.dialog = this.find("viewer");
    this.stage = this.find("stage");
    this.image = this.find("large");
    this.pointers = new Map(); // last positions of fingers or the mouse
    this.dialog.addEventListener("close", closed);
    this.listen();
  }

  // shows suspect i: its linked file, a large copy, or the small picture if there is neither
  open(i) {
    const { data, image } = this;
    this.copies ??= JSON.parse(this.find("large-data")?.textContent ?? "[]");
    const small = `data:${data.kind};base64,${data.picture[i]}`;
    const caption = `${data.sample[i]}: labelled ${data.classes[data.given[i]]}, suggested ${data.classes[data.suggested[i]]}`;
    this.suspect = i;
    this.find("caption").textContent = caption;
    image.alt = caption;
    image.onload = () => this.fit();
    image.onerror = () => {
      if (image.src === small) return;
      this.find("caption").textContent = `${caption}. The image file was moved or deleted; this is a small copy.`;
      image.src = small;
    };
    image.src = data.link?.[i] || this.copies[i] || small;
    this.paint();
    if (!this.dialog.open) this.dialog.showModal();
  }

  paint() {
    const current = this.decision(this.suspect)?.decision;
    for (const button of this.dialog.querySelectorAll("[data-mark]"))
      button.setAttribute("aria-pressed", button.dataset.mark === current);
  }

  // centres the whole picture; small pictures are enlarged eightfold or to 320 pixels
  fit() {
    const { naturalWidth, naturalHeight } = this.image, { clientWidth, clientHeight } = this.stage;
    const enough = Math.max(8, 320 / Math.max(naturalWidth, naturalHeight));
    this.fitting = Math.min(clientWidth / naturalWidth, clientHeight / naturalHeight, enough);
    this.scale = this.fitting;
    this.x = (clientWidth - naturalWidth * this.scale) / 2;
    this.y = (clientHeight - naturalHeight * this.scale) / 2;
    this.place();
  }

  place() {
    this.image.style.transform = `translate(${this.x}px, ${this.y}px) scale(${this.scale})`;
    this.image.classList.toggle("coarse", this.scale >= 3);
    this.find("zoom").textContent = `${Math.round(100 * this.scale)} %`;
  }

  // zooms around a point of the stage, which stays fixed
  zoom(factor, x = this.stage.clientWidth / 2, y = this.stage.clientHeight / 2) {
    const scale = Math.min(Math.max(this.scale * factor, this.fitting / 2), Math.max(this.fitting * 4, 16));
    this.x = x - (x - this.x) * scale / this.scale;
    this.y = y - (y - this.y) * scale / this.scale;
    this.scale = scale;
    this.place();
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    const now = { x: event.offsetX, y: event.offsetY };
    this.pointers.set(event.pointerId, now);
    if (other) {
      const apart = point => Math.hypot(point.x - other.x, point.y - other.y);
      this.zoom(apart(now) / Math.max(apart(before), 1), (now.x + other.x) / 2, (now.y + other.y) / 2);
    } else {
      this.x += now.x - before.x;
      this.y += now.y - before.y;
      this.place();
    }
  }

  listen() {
    const { stage, dialog, find } = this;
    stage.addEventListener("pointerdown", event => {
      stage.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    });
    stage.addEventListener("pointermove", event => this.move(event));
    for (const name of ["pointerup", "pointercancel"])
      stage.addEventListener(name, event => this.pointers.delete(event.pointerId));
    stage.addEventListener("wheel", event => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
    }, { passive: false });
    stage.addEventListener("dblclick", event => this.zoom(this.scale < 1 ? 1 / this.scale : 2, event.offsetX, event.offsetY));
    find("zoom-in").addEventListener("click", () => this.zoom(1.5));
    find("zoom-out").addEventListener("click", () => this.zoom(1 / 1.5));
    find("before").addEventListener("click", () => this.go(-1));
    find("after").addEventListener("click", () => this.go(1));
    find("close-viewer").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", event => event.target.dataset.mark && this.decide(event.target.dataset.mark));
    const keys = {
      "+": () => this.zoom(1.5),
      "=": () => this.zoom(1.5),
      "-": () => this.zoom(1 / 1.5),
      ArrowLeft: () => this.go(-1),
      ArrowRight: () => this.go(1),
      w: () => this.decide("wrong"),
      r: () => this.decide("right"),
    };
    dialog.addEventListener("keydown", event => {
      const action = keys[event.key] ?? keys[event.key.toLowerCase()];
      if (!action || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
      event.preventDefault();
      event.stopPropagation();
      action();
    });
    addEventListener("resize", () => dialog.open && this.image.complete && this.fit());
  }
}
