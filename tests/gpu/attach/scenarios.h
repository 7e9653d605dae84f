// The scenarios of the attach checks, by the file that they are in. attach_check.h names them and
// calls them. A scenario is for one thread of a process of its own.
#pragma once

#include "tests/gpu/attach/attach_check.h"

namespace specd {

AttachResult CheckMps(const AttachSetting& setting);
AttachResult CheckSubAllocation(const AttachSetting& setting);
AttachResult CheckOpenedTwice(const AttachSetting& setting);
AttachResult CheckBadHandles(const AttachSetting& setting);
AttachResult CheckDescriptor(const AttachSetting& setting);
AttachResult CheckPieces(const AttachSetting& setting);
AttachResult CheckPool(const AttachSetting& setting);
AttachResult CheckPidNamespace(const AttachSetting& setting);

AttachResult CheckWords(const AttachSetting& setting);
AttachResult CheckReleaseByStore(const AttachSetting& setting);
AttachResult CheckManyStreams(const AttachSetting& setting);

AttachResult CheckHostFunctions(const AttachSetting& setting);

AttachResult CheckImportedRead(const AttachSetting& setting);
AttachResult CheckKernelStore(const AttachSetting& setting);

AttachResult CheckFirstLaunch(const AttachSetting& setting);

AttachResult CheckExporterKilled(const AttachSetting& setting);
AttachResult CheckWriterKilled(const AttachSetting& setting);
AttachResult CheckImporterKilled(const AttachSetting& setting);

}  // namespace specd
