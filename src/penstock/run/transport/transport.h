#pragma once

#include <cstdint>

#include "penstock/base/error.h"
#include "penstock/run/transport/message.h"

namespace penstock {

// A message that never came, or a peer that is gone.
class TransportError : public Error {
 public:
  using Error::Error;
};

// It may still come, but it is late.
class DeadlineError : public TransportError {
 public:
  using TransportError::TransportError;
};

// Another rank has failed and this one is asked to give up. Never the first failure of a step.
class StoppedError : public Error {
 public:
  StoppedError();
};

// One rank's way to the others. Used by that rank's thread, except for stop().
//
// Messages are told apart by their key; the order in which they are sent does not matter.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  Transport(Transport&&) = delete;
  Transport& operator=(Transport&&) = delete;
  virtual ~Transport() = default;

  // What is sent and received from now on belongs to this step of the training run. All ranks count
  // alike: a message of another step is an error, not data.
  virtual void begin_step(std::int64_t number) = 0;

  // Hands `message` over and leaves it empty. Does not wait for the receiver, unless that is a
  // whole step behind.
  virtual void send(int to_rank, MessageKey key, Message& message) = 0;

  // Announces that receive() will ask for this message later.
  virtual void expect(int from_rank, MessageKey key) = 0;

  // Waits for a message and swaps it with `message`. Throws TransportError when it has not come
  // within the deadline, StoppedError after a stop().
  virtual void receive(int from_rank, MessageKey key, Message& message) = 0;

  // Makes every wait of this rank end with StoppedError, now and later, and those of the other
  // ranks too where they share memory. Safe from any thread.
  virtual void stop() noexcept = 0;
};

}  // namespace penstock
