// Preloaded into the suite: its servers listen to every interface, and here only to this
// machine. `listen` with a host would be asynchronous, and the suite reads `address()` at
// once, so this is the step below it, where no host arrives as null.
const { Server } = require('node:net');
const listen = Server.prototype._listen2;
if (typeof listen !== 'function') throw new Error('this Node has no net.Server._listen2');
Server.prototype._listen2 = function (address, port, type, ...rest) {
  const isOpen = address == null && port >= 0;
  return isOpen
    ? listen.call(this, '127.0.0.1', port, 4, ...rest)
    : listen.call(this, address, port, type, ...rest);
};
