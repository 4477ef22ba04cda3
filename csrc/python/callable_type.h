#pragma once

#include <Python.h>
#include <structmember.h>
#include <torch/csrc/Exceptions.h>

#include <cstddef>

namespace npu {

// Makes the type of Object, whose member `call` is a vectorcallfunc, so that
// Python calls it without a tuple of arguments. Python can read `shown`, if it
// is given. Call this once per Object. Throws python_error.
template <typename Object>
PyTypeObject* make_callable_type(const char* name, destructor destroy,
                                 PyMemberDef shown = {}) {
  static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET,
                                   offsetof(Object, call), READONLY, nullptr},
                                  shown,
                                  {}};
  static PyType_Slot slots[] = {
      {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
      {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
      {Py_tp_members, members},
      {0, nullptr}};
  PyType_Spec spec = {name, int(sizeof(Object)), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL |
                          Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  auto* const type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!type) throw python_error();
  return type;
}

}  // namespace npu
