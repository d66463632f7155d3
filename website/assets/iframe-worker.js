// Lets the search work on pages that are opened from file://, where browsers start no worker: the worker's script runs
// in a hidden frame instead.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.appendChild(frame);
    this.frame = frame.contentWindow;
    window.addEventListener("message", (event) => {
      if (event.source !== this.frame) return;
      this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      this.onmessage?.(event);
    });
    this.frame.document.open();
    this.frame.document.write(
      "<script>" +
        'window.postMessage = (data) => parent.postMessage(data, "*");' +
        "window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {" +
        'const script = document.createElement("script"); script.src = url; script.onload = done;' +
        "document.head.appendChild(script); })), Promise.resolve());" +
        "</script>" +
        `<script src="${url}"></script>`,
    );
    this.frame.document.close();
    this.ready = new Promise((done) => (this.frame.onload = done));
  }

  postMessage(data) {
    this.ready.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })));
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
