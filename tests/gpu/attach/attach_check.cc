#include "tests/gpu/attach/attach_check.h"

#include "tests/gpu/attach/scenarios.h"

namespace specd {

const std::vector<AttachCheck>& AttachChecks() {
  static const auto* const checks = new std::vector<AttachCheck>{
      {"mps", "whether processes share the device through MPS", CheckMps},
      {"sub_allocation", "the handle of an inner address opens the whole allocation",
       CheckSubAllocation},
      {"opened_twice", "opening what is open gives the same address and counts", CheckOpenedTwice},
      {"bad_handles", "stale, foreign and random handles are refused and break nothing",
       CheckBadHandles},
      {"descriptor", "memory behind a descriptor outlives its exporter", CheckDescriptor},
      {"pieces", "memory over several descriptors opens as one", CheckPieces},
      {"pool", "a pool's pointer opens with the pool's descriptor", CheckPool},
      {"pid_namespace", "what can be opened of a process in another pid namespace",
       CheckPidNamespace},
      {"words", "two processes' streams hand over through words of a registered memfd", CheckWords},
      {"release_by_store", "a plain store of either process releases a waiting stream",
       CheckReleaseByStore},
      {"many_streams", "streams that wait are all released; how many hold up another",
       CheckManyStreams},
      {"host_functions",
       "a host function holds its own stream; whether it holds up another function",
       CheckHostFunctions},
      {"imported_read", "a kernel reads and stores in imported memory what its exporter sees",
       CheckImportedRead},
      {"kernel_store", "the CPU sees a kernel's store before its stream ends, and how soon",
       CheckKernelStore},
      {"first_launch",
       "a kernel that is loaded, as specd's are, waits for nothing that waits for a word",
       CheckFirstLaunch},
      {"exporter_killed", "what a read gives whose exporter was killed", CheckExporterKilled},
      {"writer_killed", "a store releases the stream that waits for a process that was killed",
       CheckWriterKilled},
      {"importer_killed", "an importer that is killed while its stream waits is no importer",
       CheckImporterKilled}};
  return *checks;
}

}  // namespace specd
