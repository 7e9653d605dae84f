// FixedList is a list for data that a round appends to. Its memory is taken once and touched only
// as it fills.
//
// A round allocates nothing, so room for the longest list is taken when a sequence is opened. Pages
// that are never reached cost no memory. An overflow fails a check and never grows the list. A copy
// has the same capacity. Thread-compatible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "kernels/core/check.h"

namespace specd {

template <typename T>
class FixedList {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  FixedList() = default;
  explicit FixedList(size_t capacity)
      : data_(capacity == 0 ? nullptr : static_cast<T*>(::operator new(capacity * sizeof(T)))),
        capacity_(capacity) {}
  FixedList(const FixedList& other) : FixedList(other.capacity_) { append(other); }
  FixedList(FixedList&& other) noexcept
      : data_(std::move(other.data_)),
        capacity_(std::exchange(other.capacity_, 0)),
        size_(std::exchange(other.size_, 0)) {}
  FixedList& operator=(FixedList other) noexcept {
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
    std::swap(size_, other.size_);
    return *this;
  }

  void push_back(const T& value) {
    SPECD_CHECK(size_ < capacity_);
    data_.get()[size_++] = value;
  }
  void append(std::span<const T> values) {
    SPECD_CHECK(values.size() <= capacity_ - size_);
    if (!values.empty()) std::memcpy(data_.get() + size_, values.data(), values.size_bytes());
    size_ += values.size();
  }
  void insert(size_t index, const T& value) {
    SPECD_CHECK(size_ < capacity_ && index <= size_);
    T* at = data_.get() + index;
    std::memmove(static_cast<void*>(at + 1), at, (size_ - index) * sizeof(T));
    *at = value;
    ++size_;
  }
  // REQUIRES: size <= size().
  void truncate(size_t size) {
    SPECD_CHECK(size <= size_);
    size_ = size;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  // The bytes of all its memory, touched or not.
  size_t capacity_bytes() const { return capacity_ * sizeof(T); }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t index) { return data_.get()[index]; }
  const T& operator[](size_t index) const { return data_.get()[index]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  struct Release {
    void operator()(T* memory) const { ::operator delete(static_cast<void*>(memory)); }
  };
  std::unique_ptr<T, Release> data_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace specd
