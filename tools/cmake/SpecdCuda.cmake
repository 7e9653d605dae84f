# With nvcc present the CUDA code is always compiled; no GPU is needed for that. Without nvcc the
# build is CPU-only and says so. Sets SPECD_HAVE_CUDA.
#
# specd_cuda_files(TARGET) compiles and links the CUDA files of a target.

set(SPECD_HAVE_CUDA OFF)
if(NOT SPECD_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;90-virtual")
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_HOST_COMPILER)
      set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    # CMake 3.25 does not know that nvcc 12 and later speak C++20; newer versions define these.
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(SPECD_HAVE_CUDA ON)
    message(STATUS "specd: CUDA ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(SPECD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SPECD_CUDA=ON but nvcc was not found.\n"
      "  Put nvcc on PATH or set CUDACXX, or configure with -DSPECD_CUDA=OFF for a CPU-only build.")
  endif()
endif()
if(NOT SPECD_HAVE_CUDA)
  message(STATUS "specd: CPU-only build (no nvcc, or SPECD_CUDA=OFF); --device=cuda will be refused")
endif()

# Tests run the PTX of the kernels on a CPU (tests/gpu/ptx): a launcher keeps what nvcc makes anyway,
# for those of these two architectures that are built, and for 9.0 where neither is.
set(SPECD_PTX_FOLDER ${PROJECT_BINARY_DIR}/tests/gpu/ptx)
set(SPECD_PTX_ARCHS "")
set(SPECD_KEEP_PTX "")
if(SPECD_HAVE_CUDA AND SPECD_BUILD_TESTS)
  foreach(arch 80 90)
    if(CMAKE_CUDA_ARCHITECTURES MATCHES "(^|;)${arch}[af]?(-|;|$)")
      list(APPEND SPECD_PTX_ARCHS ${arch})
    endif()
  endforeach()
  if(NOT SPECD_PTX_ARCHS)
    set(SPECD_PTX_ARCHS 90)
  endif()
  specd_find(Python3 python3 COMPONENTS Interpreter)
  list(JOIN SPECD_PTX_ARCHS "," kept_archs)
  set(SPECD_KEEP_PTX
    ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/keep_ptx.py ${SPECD_PTX_FOLDER} ${kept_archs} --)
endif()

function(specd_cuda_files target)
  # The runtime is linked into the archive's users, so that no CUDA library has to be installed where
  # specd runs on a CPU.
  target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  set_target_properties(${target} PROPERTIES
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static)
  # --fmad=false is to nvcc what -ffp-contract=off is to the host compiler.
  set(cuda_flags --fmad=false -Xcompiler=-Wall,-Wextra,-ffp-contract=off)
  # Kernels are most of what is installed. So they take a fifth of what nvcc's own compression leaves
  # of them: residual_kernel.cu 1.0 MB in place of 5.4, with nvcc 13.0.
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    list(APPEND cuda_flags --compress-mode=size)
  endif()
  if(SPECD_WERROR)
    list(APPEND cuda_flags -Werror=all-warnings -Xcompiler=-Werror)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
endfunction()
