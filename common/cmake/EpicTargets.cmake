# The only way to add targets: epic_cc_library, epic_cc_test, epic_cc_bench, epic_cc_binary, epic_proto_library.
#
# A library names its headers, sources and dependencies; its alias is epic::<NAME>. Includes are written from the
# top of the project ("common/base/clock.h"). No include_directories, no global definitions.

define_property(GLOBAL PROPERTY EPIC_TEST_SOURCES BRIEF_DOCS "absolute paths of every registered *_test.cc")
define_property(GLOBAL PROPERTY EPIC_HEADERS BRIEF_DOCS "target|header of every library header")

# epic_cc_library(NAME x [HDRS ...] [SRCS ...] [DEPS ...] [TESTONLY])
function(epic_cc_library)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "TESTONLY" "NAME" "HDRS;SRCS;DEPS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "epic_cc_library(${ARG_NAME}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  set(target "epic_${ARG_NAME}")
  if(ARG_SRCS)
    add_library(${target} STATIC ${ARG_SRCS} ${ARG_HDRS})
    target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${target} PUBLIC ${ARG_DEPS} PRIVATE epic::flags)
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${target} INTERFACE ${ARG_DEPS})
  endif()
  add_library(epic::${ARG_NAME} ALIAS ${target})
  foreach(hdr IN LISTS ARG_HDRS)
    set_property(GLOBAL APPEND PROPERTY EPIC_HEADERS "${target}|${CMAKE_CURRENT_SOURCE_DIR}/${hdr}")
  endforeach()
endfunction()

# epic_cc_test(NAME x_test SRCS x_test.cc ... [DEPS ...] [LABELS unit|sim|stress|fuzz|slow|bench|emulated ...]
#              [TIMEOUT seconds] [ENV "K=V" ...])
# One CTest entry per binary; GoogleTest and a main are linked in. Default label: unit. Default limit: 120 s.
# Golden files, the default model and temporary folders are found through common/testing/paths.h.
function(epic_cc_test)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;TIMEOUT" "SRCS;DEPS;LABELS;ENV")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "epic_cc_test(${ARG_NAME}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set(target "${ARG_NAME}")
  add_executable(${target} ${ARG_SRCS})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/test")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${ARG_DEPS} epic::testing_main epic::dep_gtest epic::flags)
  add_test(NAME ${ARG_NAME} COMMAND ${target})
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${ARG_ENV}")
  foreach(src IN LISTS ARG_SRCS)
    set_property(GLOBAL APPEND PROPERTY EPIC_TEST_SOURCES "${CMAKE_CURRENT_SOURCE_DIR}/${src}")
  endforeach()
endfunction()

# epic_cc_bench(NAME epic_x_bench SRCS ... DEPS ...): a Google Benchmark binary in bin/; it checks before it times.
function(epic_cc_bench)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME" "SRCS;DEPS")
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_include_directories(${ARG_NAME} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} epic::dep_benchmark epic::flags)
endfunction()

# epic_cc_binary(NAME epic SRCS main.cc DEPS ...): a shipped binary in bin/.
function(epic_cc_binary)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME" "SRCS;DEPS")
  add_executable(${ARG_NAME}_binary ${ARG_SRCS})
  set_target_properties(${ARG_NAME}_binary PROPERTIES OUTPUT_NAME "${ARG_NAME}")
  target_include_directories(${ARG_NAME}_binary PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${ARG_NAME}_binary PRIVATE ${ARG_DEPS} epic::flags)
endfunction()

# epic_script_test(NAME x COMMAND ... [LABELS ...] [TIMEOUT s] [ENV ...]): a test that is a script.
function(epic_script_test)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;TIMEOUT" "COMMAND;LABELS;ENV")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_COMMAND})
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                       ENVIRONMENT "${ARG_ENV}" SKIP_RETURN_CODE 77)
endfunction()

# epic_proto_library(NAME proto_x SRCS epic/v1/x.proto ... [DEPS epic::proto_y ...] [GRPC])
# Generated code is a target of its own, without our warning flags.
function(epic_proto_library)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "GRPC" "NAME" "SRCS;DEPS")
  set(out "${PROJECT_BINARY_DIR}/gen")
  file(MAKE_DIRECTORY "${out}")
  set(generated)
  foreach(src IN LISTS ARG_SRCS)
    string(REGEX REPLACE "\\.proto$" "" base "${src}")
    set(outputs "${out}/${base}.pb.cc" "${out}/${base}.pb.h")
    set(grpc_args)
    if(ARG_GRPC)
      list(APPEND outputs "${out}/${base}.grpc.pb.cc" "${out}/${base}.grpc.pb.h")
      set(grpc_args --grpc_out "${out}" "--plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>")
    endif()
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND protobuf::protoc --cpp_out "${out}" ${grpc_args} -I "${PROJECT_SOURCE_DIR}/proto"
              "${PROJECT_SOURCE_DIR}/proto/${src}"
      DEPENDS "${PROJECT_SOURCE_DIR}/proto/${src}" protobuf::protoc
      VERBATIM)
    list(APPEND generated ${outputs})
  endforeach()
  set(target "epic_${ARG_NAME}")
  add_library(${target} STATIC ${generated})
  target_include_directories(${target} SYSTEM PUBLIC "${out}")
  if(ARG_GRPC)
    target_link_libraries(${target} PUBLIC ${ARG_DEPS} epic::dep_grpc)
  else()
    target_link_libraries(${target} PUBLIC ${ARG_DEPS} epic::dep_protobuf)
  endif()
  add_library(epic::${ARG_NAME} ALIAS ${target})
endfunction()

# Fails the configure step when a *_test.cc exists that no epic_cc_test names, and writes the list of headers
# from which the self-containment test works.
function(epic_check_every_test_is_registered)
  get_property(registered GLOBAL PROPERTY EPIC_TEST_SOURCES)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS
       "${PROJECT_SOURCE_DIR}/common/*_test.cc" "${PROJECT_SOURCE_DIR}/kernels/*_test.cc"
       "${PROJECT_SOURCE_DIR}/services/*_test.cc" "${PROJECT_SOURCE_DIR}/loadgen/*_test.cc"
       "${PROJECT_SOURCE_DIR}/tests/*_test.cc")
  foreach(file IN LISTS found)
    if(NOT file IN_LIST registered)
      message(SEND_ERROR "${file} is not in any epic_cc_test: register it beside its library.")
    endif()
  endforeach()
  get_property(headers GLOBAL PROPERTY EPIC_HEADERS)
  string(REPLACE ";" "\n" headers "${headers}")
  file(WRITE "${CMAKE_BINARY_DIR}/headers.txt" "${headers}\n")
endfunction()

# Each header compiles alone: a source that includes its own header first proves it for that header (tests/tidy
# checks the order); for every other library header a source that includes only it is compiled here.
function(epic_check_headers_compile_alone)
  get_property(headers GLOBAL PROPERTY EPIC_HEADERS)
  foreach(entry IN LISTS headers)
    string(REPLACE "|" ";" entry "${entry}")
    list(GET entry 0 target)
    list(GET entry 1 header)
    string(REGEX REPLACE "\\.[^.]*$" ".cc" source "${header}")
    if(EXISTS "${source}" OR header MATCHES "-inl\\.h$")
      continue()
    endif()
    file(RELATIVE_PATH path "${PROJECT_SOURCE_DIR}" "${header}")
    string(MAKE_C_IDENTIFIER "${path}" name)
    set(alone "${PROJECT_BINARY_DIR}/headers_alone/${name}.cc")
    file(CONFIGURE OUTPUT "${alone}" CONTENT "#include \"${path}\"\n#include \"${path}\"\n")
    if(NOT TARGET ${target}_headers_alone)
      add_library(${target}_headers_alone OBJECT)
      target_link_libraries(${target}_headers_alone PRIVATE ${target} epic::flags)
      target_compile_options(${target}_headers_alone PRIVATE -O0 -g0)
      list(APPEND targets ${target}_headers_alone)
    endif()
    target_sources(${target}_headers_alone PRIVATE "${alone}")
  endforeach()
  add_custom_target(epic_headers_compile_alone DEPENDS ${targets})
endfunction()
