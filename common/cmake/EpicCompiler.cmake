# Compiler settings shared by every target of the project, as one interface target: epic::flags.
# Targets get it from epic_cc_*; nothing is set globally but the language standard and the output folder.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

find_program(EPIC_CCACHE ccache)
if(EPIC_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${EPIC_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${EPIC_CCACHE}")
endif()

add_library(epic_flags INTERFACE)
add_library(epic::flags ALIAS epic_flags)
target_compile_options(epic_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-Wno-unused-parameter;-Wno-missing-field-initializers;-fno-omit-frame-pointer>)
# GCC 12 warns of overlapping copies where "literal" + std::string is inlined (its bug 105651), and of the
# content of std::optional where a StatusOr of one is inlined (its bug 80635).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(epic_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-maybe-uninitialized>)
endif()
# Assertions are EPIC_CHECK and stay on; <cassert> is not used. Release keeps line tables for profilers.
target_compile_options(epic_flags INTERFACE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-g1>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(epic_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety;-Werror=thread-safety;-Wno-unknown-warning-option>)
endif()

if(EPIC_SANITIZER STREQUAL "address")
  target_compile_options(epic_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all)
  target_link_options(epic_flags INTERFACE -fsanitize=address,undefined)
elseif(EPIC_SANITIZER STREQUAL "thread")
  target_compile_options(epic_flags INTERFACE -fsanitize=thread)
  target_link_options(epic_flags INTERFACE -fsanitize=thread)
elseif(NOT EPIC_SANITIZER STREQUAL "none")
  message(FATAL_ERROR "EPIC_SANITIZER is '${EPIC_SANITIZER}'; use none, address or thread.")
endif()

find_program(EPIC_LLD ld.lld)
if(EPIC_LLD)
  target_link_options(epic_flags INTERFACE $<$<LINK_LANGUAGE:CXX>:-fuse-ld=lld>)
endif()
