/** The event log as one EventSource. It reports and ends; whoever opened it decides when to try again. */

interface Listener {
  onOpen: () => void;
  onEvent: (data: string) => void;
  onLost: () => void;
}

/** Follows the log behind `after` (`session.sequence`). Gives the function that stops it. */
export function followEvents(after: string, listener: Listener): () => void {
  const source = new EventSource(new URL(`events?after=${after}`, document.baseURI));
  source.onopen = listener.onOpen;
  source.onmessage = (message: MessageEvent<string>) => listener.onEvent(message.data);
  source.onerror = () => {
    // The browser's own retry would neither fetch State again nor survive an HTTP error.
    source.close();
    listener.onLost();
  };
  return () => source.close();
}
