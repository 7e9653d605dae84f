# Every dependency comes from the system by find_package. A missing one stops the configuration
# with the name of the Debian package that brings it, so that nobody has to search.

function(specd_require package apt)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR
      "specd needs ${package}, which was not found.\n"
      "  On Debian 12:  sudo apt-get install ${apt}\n"
      "  All at once:   ./tools/setup")
  endif()
endfunction()

macro(specd_find package apt)
  specd_require(${package} ${apt} ${ARGN})
  # find_package defines imported targets in the calling directory; a second, cached call makes
  # them visible here, outside the function's scope.
  find_package(${package} ${ARGN} QUIET)
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
specd_find(Threads libc6-dev)
specd_find(Boost libboost-dev 1.74)
specd_find(absl libabsl-dev)
specd_find(spdlog libspdlog-dev 1.10)
specd_find(cppzmq cppzmq-dev)
specd_find(msgpack libmsgpack-cxx-dev 4.1)
specd_find(simdjson libsimdjson-dev)
specd_find(hwy libhwy-dev 1.0)
if(SPECD_BUILD_TESTS)
  specd_find(doctest doctest-dev)
  specd_find(boost_context libboost-context-dev 1.74)
endif()
