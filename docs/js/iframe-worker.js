// The theme searches in a worker, which browsers refuse to start from a file. There, a hidden frame does the same work.
if (location.protocol === "file:")
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = Object.assign(document.createElement("iframe"), { hidden: true, title: "search" })
      document.body.append(frame)
      const inner = frame.contentWindow, script = inner.document.createElement("script")
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise((resolve, reject) => Object.assign(script, { onload: resolve, onerror: reject }))
      this.inner = inner
      inner.document.body.append(Object.assign(script, { src: new URL(url, document.baseURI) }))
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
