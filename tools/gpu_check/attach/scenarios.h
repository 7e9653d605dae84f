// The scenarios, by what they are about; attach_check.h is what they are called through.
#pragma once

#include "tools/gpu_check/attach/attach_check.h"

namespace specd {

AttachResult CheckSubAllocation(const AttachSetting& setting);
AttachResult CheckOpenedTwice(const AttachSetting& setting);
AttachResult CheckBadHandles(const AttachSetting& setting);
AttachResult CheckDescriptor(const AttachSetting& setting);
AttachResult CheckPool(const AttachSetting& setting);

AttachResult CheckWords(const AttachSetting& setting);
AttachResult CheckReleaseByStore(const AttachSetting& setting);
AttachResult CheckHandOffLatency(const AttachSetting& setting);
AttachResult CheckEvents(const AttachSetting& setting);
AttachResult CheckManyStreams(const AttachSetting& setting);

AttachResult CheckExporterKilled(const AttachSetting& setting);
AttachResult CheckWriterKilled(const AttachSetting& setting);
AttachResult CheckImporterKilled(const AttachSetting& setting);

}  // namespace specd
