// The stream of what is shown: opened again whenever it ends, closed while nobody looks.

/** After this long without news the connection is taken for dead, in ms. */
const DEAD = 10_000;
const AGAIN = 2_000;

export class Connection {
  #source = null;
  #timer = 0;
  #heard = 0;
  #opened = 0;
  #since = 0;
  #paused = false;
  #wanted = false;

  /** `onPart(name, content)` gets each part that is new; `refused` says why the service takes no viewer. */
  constructor(url, onPart) {
    this.url = url;
    this.onPart = onPart;
    this.refused = "";
    document.addEventListener("visibilitychange", () => this.#follow());
    setInterval(() => this.#watch(), 1000);
    this.#follow();
  }

  /** How long nothing has been heard, in ms. */
  get age() {
    return performance.now() - this.#heard;
  }

  /** How long it has been without news although it wants some, in ms. */
  get missing() {
    return Math.min(this.age, performance.now() - this.#since);
  }

  get paused() {
    return this.#paused;
  }

  set paused(paused) {
    this.#paused = paused;
    this.#follow();
  }

  #follow() {
    const wanted = !this.#paused && !document.hidden;
    if (wanted && !this.#wanted) this.#since = performance.now();
    this.#wanted = wanted;
    if (wanted && !this.#source) this.#open();
    if (!wanted) this.#close();
  }

  #open() {
    this.#close();
    this.#opened = performance.now();
    const source = new EventSource(this.url);
    this.#source = source;
    for (const name of ["state", "events", "points", "point", "disorder"]) {
      source.addEventListener(name, (event) => {
        this.#heard = performance.now();
        this.refused = "";
        this.onPart(name, JSON.parse(event.data));
      });
    }
    source.addEventListener("error", () => {
      // The browser itself tries again, unless it was refused.
      if (source.readyState === EventSource.CLOSED && source === this.#source) this.#later();
    });
  }

  #close() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #later() {
    this.#close();
    this.refused = "The service takes no further viewer at present.";
    this.#timer = setTimeout(() => this.#follow(), AGAIN);
  }

  /** Nothing tells of a network that has gone: silence does. */
  #watch() {
    if (this.#source && Math.min(this.age, performance.now() - this.#opened) > DEAD) this.#open();
  }
}
