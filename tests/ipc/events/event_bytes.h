// Bytes, EventMap and With give tests of events the payload of a message, its map as any msgpack
// library reads it, and the map with another value.
#pragma once

#include <map>
#include <msgpack.hpp>
#include <string>

namespace specd {

template <class Append, class Message>
std::string Bytes(Append append, const Message& message) {
  std::string bytes;
  append(message, &bytes);
  return bytes;
}

// The values are valid as long as this object.
struct EventMap {
  explicit EventMap(const std::string& bytes)
      : handle(msgpack::unpack(bytes.data(), bytes.size())) {
    handle.get().convert(map);
  }
  msgpack::object_handle handle;
  std::map<std::string, msgpack::object> map;
};

// The same map with one entry changed, removed (a null value) or added.
inline std::string With(const std::string& bytes, const std::string& key,
                        const msgpack::object* value) {
  EventMap event(bytes);
  if (value == nullptr) {
    event.map.erase(key);
  } else {
    event.map[key] = *value;
  }
  msgpack::sbuffer buffer;
  msgpack::pack(buffer, event.map);
  return {buffer.data(), buffer.size()};
}

}  // namespace specd
