// The worker's side of the lock by which a page notices that its worker has ended, see `watchLock`.

/**
 * Acquires the lock by which the page detects the end of this thread, and holds it for life; false if the browser has
 * no locks.
 */
export function acquireForLife(lock: string): Promise<boolean> {
  const { locks } = globalThis.navigator;
  if (!locks) return Promise.resolve(false);
  return new Promise((done) => {
    const forever = new Promise<void>(() => {});
    locks.request(lock, () => {
      done(true);
      return forever;
    }).catch(() => done(false));
  });
}
