# find_package(Blizzard): the target Blizzard::blizzard, for target_link_libraries.
if(NOT TARGET Blizzard::blizzard)
  get_filename_component(BLIZZARD_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  include(CMakeFindDependencyMacro)
  set(THREADS_PREFER_PTHREAD_FLAG ON)
  find_dependency(Threads)
  add_library(Blizzard::blizzard STATIC IMPORTED)
  set_target_properties(Blizzard::blizzard PROPERTIES
    IMPORTED_LOCATION "${BLIZZARD_PREFIX}/lib/libblizzard.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES "C"
    INTERFACE_INCLUDE_DIRECTORIES "${BLIZZARD_PREFIX}/include"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
  set(BLIZZARD_PARMACS_M4 "${BLIZZARD_PREFIX}/share/blizzard/parmacs.m4")
endif()
