// Scripts of workers whose GPU devices a test can destroy.

/**
 * The address of a module that runs a worker's script, and destroys the GPU devices that it was given when it is sent the message "lose".
 */
export function losing(script) {
  const before = `
    const { requestDevice } = globalThis.GPUAdapter?.prototype ?? {};
    const devices = [];
    if (requestDevice) GPUAdapter.prototype.requestDevice = async function (...args) {
      devices.push(await requestDevice.apply(this, args));
      return devices.at(-1);
    };
    addEventListener("message", (event) => {
      if (event.data !== "lose") return;
      event.stopImmediatePropagation();
      devices.forEach((each) => each.destroy());
    });`;
  const scripts = [before, `import ${JSON.stringify(String(script))};`].map((text) => URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
  const both = new Blob([scripts.map((each) => `import "${each}";`).join("\n")], { type: "text/javascript" });
  return URL.createObjectURL(both);
}
