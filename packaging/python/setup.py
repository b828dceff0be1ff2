"""Tags the wheel: any Python 3, this platform. The files inside are programs and libraries, not extension modules."""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution


class Binary(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(distclass=Binary, cmdclass={"bdist_wheel": AnyPython})
